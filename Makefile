# Everything a person does with this suite. `make help` lists the targets.
PYTHON  ?= python3
VENV    ?= .venv
RUN      = $(VENV)/bin/python
SEEDS   ?= 1,2,3
MODELS  ?= softmax,dagpam
SCALE   ?=
RESULTS ?= results/local
JOBS    ?=
CASES   ?= default
EXTRAS  ?= test
EXTRA   ?=
EXPERIMENT ?= lm_laptop
MODEL   ?= dagpam
GPU     ?= h100
export GPAM_MIRROR

REPRODUCE = scripts/reproduce.py --scale "$(SCALE)" --models "$(MODELS)" --seeds "$(SEEDS)" --results "$(RESULTS)" --jobs "$(JOBS)"

.DEFAULT_GOAL := help
.PHONY: help setup doctor test lint reproduce-lm reproduce-nmt sweep-lambda tables compare analyse benchmark plan clean

help: ## this list
	@echo "make TARGET [SCALE=laptop|small|paper] [MODELS=softmax,dagpam] [SEEDS=1,2,3] [JOBS=2] [RESULTS=results/local]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  %-15s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## make .venv with the pinned packages (done by the other targets when missing)

$(VENV)/.installed: pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh "$(PYTHON)" "$(VENV)" "$(EXTRAS)"

doctor: setup ## what is installed, what this machine has, what would run
	@$(RUN) scripts/doctor.py

test: setup ## all tests
	@OMP_NUM_THREADS=1 $(RUN) -m pytest --numprocesses auto --dist loadfile

lint: setup ## ruff: style and common mistakes
	@$(RUN) -m ruff check . && $(RUN) -m ruff format --check .

reproduce-lm: ## train and evaluate softmax and daGPAM as language models, write the table
	@$(PYTHON) $(REPRODUCE) --announce lm
	@$(MAKE) --no-print-directory setup
	@$(RUN) $(REPRODUCE) lm $(EXTRA)

reproduce-nmt: ## train and evaluate softmax and daGPAM on translation, write the table
	@$(PYTHON) $(REPRODUCE) --announce nmt
	@$(MAKE) --no-print-directory setup
	@$(RUN) $(REPRODUCE) nmt $(EXTRA)

sweep-lambda: ## a Hydra multirun over lambda- and lambda+, with a table and a plot (TASK=lm|nmt)
	@$(PYTHON) $(REPRODUCE) --announce --sweep $(or $(TASK),lm)
	@$(MAKE) --no-print-directory setup
	@$(RUN) $(REPRODUCE) --sweep $(or $(TASK),lm) $(EXTRA)

tables: setup ## tables, figures and report of RESULTS from its records
	@$(RUN) scripts/tabulate.py "$(RESULTS)"

compare: setup ## what differs between two runs, or two models: A=FOLDER B=FOLDER below results/.../runs
	@$(RUN) scripts/compare.py "$(A)" "$(B)" $(EXTRA)

analyse: setup ## collapse, gradients, weights, lemmas of RESULTS: numbers, figures, findings (checkpoints where there are)
	@$(RUN) scripts/analyse.py results="$(RESULTS)" $(EXTRA)

benchmark: setup ## speed: every mechanism and its peers, interleaved in one run (CASES=default|all|core|..., RESULTS)
	@$(RUN) scripts/benchmark.py cases="$(CASES)" paths.results="$(RESULTS)" $(EXTRA)

plan: setup ## what a training would cost: EXPERIMENT=lm_small MODEL=dagpam GPU=a100|h100|h200|rtx4090|cpu
	@$(RUN) scripts/plan.py experiment="$(EXPERIMENT)" model="$(MODEL)" device="$(GPU)" $(EXTRA)

clean: ## remove prepared data and your own runs (not .venv, not the published results)
	rm -rf data outputs results/local
