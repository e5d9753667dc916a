# Everything a person does with this suite. `make help` lists the targets.
PYTHON  ?= python3
VENV    ?= .venv
RESULTS ?= results/local
CASES   ?= default
EXTRAS  ?= test
EXPERIMENT ?= lm_laptop
MODEL   ?= dagpam
GPU     ?= h100
TRIALS  ?= 20
TASK    ?= lm
# A setting reaches a recipe as a variable of the environment, "$$SEEDS", and never as words of the shell's or of make's
# (SEEDS='1; touch x', SEEDS='$(shell touch x)'): a quoted variable's value is read by nobody but the script it is for.
# Any other name on make's command line could be one of make's own (SHELL, MAKE, RUN), whose value is run: it is refused.
override SETTINGS := PYTHON VENV SEEDS MODELS SCALE RESULTS JOBS CASES EXTRAS TORCH_INDEX EXTRA EXPERIMENT MODEL GPU PARTS TRIALS TASK A B GPAM_MIRROR
# (A stands for each name in turn: inside of foreach its own name is hidden, so it has to be a declared one.)
override GIVEN := $(foreach A,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(A)))),$(A)))
ifneq ($(filter-out $(SETTINGS),$(GIVEN)),)
$(error unknown setting '$(firstword $(filter-out $(SETTINGS),$(GIVEN)))', wanted some of $(SETTINGS))
endif
# What each target takes; another setting would be passed over. (A make within a make has those of the first.)
override TAKES := PYTHON VENV EXTRAS TORCH_INDEX GPAM_MIRROR
override TAKES_reproduce-lm  := SCALE MODELS SEEDS RESULTS JOBS EXTRA
override TAKES_reproduce-nmt := $(TAKES_reproduce-lm)
override TAKES_sweep-lambda  := $(TAKES_reproduce-lm) TASK
override TAKES_reproduce-ptb := RESULTS JOBS EXTRA
override TAKES_tables        := RESULTS
override TAKES_publish       := RESULTS
override TAKES_archive       := RESULTS
override TAKES_compare       := A B
override TAKES_analyse       := RESULTS EXTRA
override TAKES_perturb       := RESULTS EXTRA
override TAKES_evidence      := RESULTS PARTS JOBS EXTRA
override TAKES_benchmark     := CASES RESULTS EXTRA
override TAKES_plan          := EXPERIMENT MODEL GPU EXTRA
override TAKES_soak          := PARTS
override TAKES_search        := EXPERIMENT MODEL TRIALS RESULTS EXTRA
override TAKES_watch         := RESULTS EXPERIMENT
override GOALS := $(or $(MAKECMDGOALS),help)
override TAKEN := $(TAKES) $(foreach A,$(GOALS),$(TAKES_$(A)))
ifneq ($(and $(filter 0,$(MAKELEVEL)),$(filter-out $(TAKEN),$(GIVEN))),)
$(error $(firstword $(filter-out $(TAKEN),$(GIVEN))) is no setting of '$(GOALS)', wanted some of $(TAKEN))
endif
$(foreach setting,$(SETTINGS),$(eval override $(setting) := $$(value $(setting))))
export $(SETTINGS)

override RUN       = "$$VENV/bin/python"
# EXTRA is several words, of which none is a pattern of file names
override MORE      = set -f;
override REPRODUCE = scripts/reproduce.py --scale "$$SCALE" --models "$$MODELS" --seeds "$$SEEDS" --results "$$RESULTS" --jobs "$$JOBS"

.DEFAULT_GOAL := help
.PHONY: help setup doctor test lint reproduce-lm reproduce-nmt reproduce-ptb sweep-lambda tables publish archive compare analyse perturb evidence benchmark plan soak lock audit search watch clean

help: ## this list
	@awk -F ':.*## ' 'BEGIN {print "make TARGET [NAME=value ...]; most take RESULTS=results/local and EXTRA=\"KEY=VALUE ...\" (Hydra'"'"'s)"} \
		/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST) || :  # ended early by | head

setup: $(VENV)/.installed ## make .venv with the pinned packages (by itself where missing) [TORCH_INDEX=address of torch's CPU wheels]

$(VENV)/.installed: pyproject.toml requirements.lock scripts/setup.sh $(if $(filter EXTRAS TORCH_INDEX,$(GIVEN)),asked)
	@bash scripts/setup.sh "$$PYTHON" "$$VENV" "$$EXTRAS" "$$TORCH_INDEX"
.PHONY: asked  # what is given by hand is installed where an environment is there already

doctor: setup ## what is installed, what this machine has, what would run
	@$(RUN) scripts/doctor.py

test: setup ## all tests, without a GPU but for those that want one
	@OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= $(RUN) -m pytest --numprocesses auto --dist loadfile
	@! nvidia-smi -L >/dev/null 2>&1 || $(RUN) -m pytest tests/gpam/test_triton.py

lint: setup ## ruff: style and common mistakes
	@$(RUN) -m ruff check . && $(RUN) -m ruff format --check .

reproduce-lm: ## train softmax and daGPAM as language models, write the table (SCALE=laptop|small|paper MODELS=softmax,dagpam SEEDS=1,2,3 JOBS=2)
	@"$$PYTHON" $(REPRODUCE) --announce lm
	@$(MAKE) --no-print-directory --silent setup
	@$(MORE) $(RUN) $(REPRODUCE) lm $$EXTRA

reproduce-nmt: ## the same on translation
	@"$$PYTHON" $(REPRODUCE) --announce nmt
	@$(MAKE) --no-print-directory --silent setup
	@$(MORE) $(RUN) $(REPRODUCE) nmt $$EXTRA

reproduce-ptb: ## the paper's Penn Treebank row: verdict and controls of scale (most of a day of two cores; GPAM_MIRROR=folder with ptb/ptb.train.txt and the others)
	@set -f; "$$PYTHON" scripts/reproduce_ptb.py --results "$$RESULTS" --jobs "$$JOBS" --announce -- $$EXTRA
	@$(MAKE) --no-print-directory --silent setup
	@$(MORE) $(RUN) scripts/reproduce_ptb.py --results "$$RESULTS" --jobs "$$JOBS" -- $$EXTRA

sweep-lambda: ## a Hydra multirun over lambda- and lambda+, with a table and a plot (TASK=lm|nmt, and those of reproduce-lm)
	@"$$PYTHON" $(REPRODUCE) --announce --sweep "$$TASK"
	@$(MAKE) --no-print-directory --silent setup
	@$(MORE) $(RUN) $(REPRODUCE) --sweep "$$TASK" $$EXTRA

tables: setup ## tables, figures and report of RESULTS from its records
	@$(RUN) scripts/tabulate.py "$$RESULTS"

publish: setup ## the runs of RESULTS into results/, and its tables, figures and pages made again
	@$(RUN) scripts/publish.py "$$RESULTS"

archive: setup ## one archive of the runs of RESULTS with their histories and texts, without checkpoints
	@$(RUN) scripts/archive.py "$$RESULTS"

compare: ## what differs between two runs, or two models: A=FOLDER B=FOLDER below results/.../runs
	@test -n "$$A" -a -n "$$B" || { echo "compare: wanted A=FOLDER B=FOLDER, below results/.../runs" >&2; exit 2; }
	@$(MAKE) --no-print-directory --silent setup
	@$(MORE) $(RUN) scripts/compare.py "$$A" "$$B"

analyse: setup ## collapse, gradients, weights, lemmas of RESULTS: numbers and figures (checkpoints where there are)
	@$(MORE) $(RUN) scripts/analyse.py results="$$RESULTS" $$EXTRA

perturb: setup ## noisy, dropped, swapped and adversarial words read by the runs of RESULTS: numbers, figure, table
	@$(MORE) $(RUN) scripts/perturb.py results="$$RESULTS" $$EXTRA

evidence: setup ## the runs of docs/experiments/, part by part (PARTS=ptb,...; none: all whose recipe is frozen, weeks; JOBS=1); goes on where it stopped
	@$(MORE) $(RUN) scripts/evidence.py paths.results="$$RESULTS" $${PARTS:+"parts=[$$PARTS]"} $${JOBS:+"jobs=$$JOBS"} $$EXTRA

benchmark: setup ## speed: every mechanism and its peers, interleaved in one run (CASES=default|all|core|..., RESULTS)
	@$(MORE) $(RUN) scripts/benchmark.py cases="$$CASES" paths.results="$$RESULTS" $$EXTRA

plan: setup ## what a training would cost: EXPERIMENT=lm_small MODEL=dagpam GPU=a100|h100|h200|rtx4090|cpu
	@$(MORE) $(RUN) scripts/plan.py experiment="$$EXPERIMENT" model="$$MODEL" device="$$GPU" $$EXTRA

soak: setup ## the promises of docs/reliability.md at full count, and the page (PARTS=NAME,... for some)
	@OMP_NUM_THREADS=1 $(RUN) scripts/soak.py "$$PARTS"

lock: ## requirements.lock anew from constraints.txt: every pinned package with the hashes of its files
	@"$$PYTHON" scripts/lock.py

audit: setup ## is what is installed what was locked, byte for byte, and is a weakness of it known?
	@$(RUN) scripts/audit.py

search: setup ## Optuna looks for lambda- and lambda+ on the validation set: EXPERIMENT=lm_laptop MODEL=dagpam TRIALS=20
	@$(MORE) $(RUN) scripts/search.py experiment="$$EXPERIMENT" model="$$MODEL" trials="$$TRIALS" paths.results="$$RESULTS" $$EXTRA

watch: setup ## where the runs of EXPERIMENT below RESULTS stand: status, update, losses, time left
	@$(RUN) scripts/watch.py "$$RESULTS" "$$EXPERIMENT"

clean: ## remove prepared data and outputs (not .venv, nor any results)
	rm -rf data outputs
