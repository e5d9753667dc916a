"""Train and evaluate models by one protocol and write the table: the work behind `make reproduce-lm` and its like.

Only the standard library is imported here, so that the first line can be said before anything is installed.
"""

import argparse
import csv
import difflib
import itertools
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TASKS = {"lm": "language modelling", "nmt": "translation"}
SCALES = {"laptop": "minutes of CPU", "small": "one GPU, or hours of CPU", "paper": "one GPU or several"}
USAGE_ERROR = 2
SWEEP = ROOT / "configs" / "sweep" / "lambda.yaml"
MULTI30K = "multi30k_de_en"
SET_BY = {"seed": "SEEDS", "model": "MODELS", "experiment": "TASK and SCALE", "sweep": "the target 'sweep-lambda'"}
"""What of configs/train.yaml is set from here, to what sets it."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", help=f"one of {', '.join(TASKS)}")
    parser.add_argument("--scale", default="", help="laptop, small or paper; default: paper with a GPU, else laptop")
    parser.add_argument(
        "--models", default="", help="names in configs/model/, separated by commas, or all; default: those compared"
    )
    parser.add_argument("--seeds", default="", help="separated by commas; default: 1,2,3, and 1 of a sweep")
    parser.add_argument("--results", default="results/local", type=os.path.expanduser)
    parser.add_argument("--jobs", default="", help="runs side by side; default: one a core; with a GPU one")
    parser.add_argument("--sweep", action="store_true", help="sweep lambda- and lambda+ instead of comparing models")
    parser.add_argument("--announce", action="store_true", help="say what would run and what it costs, and stop")
    arguments, overrides = parser.parse_known_args()
    gpus = visible_gpus()
    scale = arguments.scale or ("paper" if gpus else "laptop")
    seeds = (arguments.seeds or ("1" if arguments.sweep else "1,2,3")).split(",")
    arguments.seeds = ",".join(dict.fromkeys(map(str.strip, seeds)))
    if not arguments.sweep:
        arguments.models = arguments.models or compared(experiment_of(arguments.task, scale, False))
    complaint = wrong(scale, gpus, arguments, overrides)
    if complaint:
        print(f"{'sweep-lambda' if arguments.sweep else f'reproduce-{arguments.task}'}: {complaint}", file=sys.stderr)
        return USAGE_ERROR
    jobs = int(arguments.jobs) if arguments.jobs else 1 if gpus else cores()
    if arguments.announce:
        print(announcement(arguments, scale, gpus, jobs), flush=True)
        return 0
    if gpus and not torch_sees_a_gpu():
        print(
            f"reproduce: the driver lists {gpus} GPU, and torch can use none; CUDA_VISIBLE_DEVICES= hides them, and "
            "make setup TORCH_INDEX=ADDRESS installs another build of torch",
            file=sys.stderr,
        )
        return USAGE_ERROR
    return reproduce(arguments, scale, gpus, jobs, overrides)


def visible_gpus() -> int:
    """GPUs that the driver's own tool lists, of those that ``CUDA_VISIBLE_DEVICES`` leaves."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    left = None if chosen is None else list(itertools.takewhile(lambda name: name not in ("", "-1"), chosen.split(",")))
    if left == [] or not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    found = sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0
    return found if left is None else min(found, len(left))


def torch_sees_a_gpu() -> bool:
    """Not so with a build of torch for processors, a driver that is too old, or a GPU that is."""
    asked = [sys.executable, "-c", "import torch; (torch.ones(1, device='cuda') + 1).item()"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def wrong(scale: str, gpus: int, arguments: argparse.Namespace, overrides: list[str]) -> str | None:
    """What is wrong with the user's settings, in one sentence; None when nothing is."""
    for setting, got, known in (("TASK", arguments.task, TASKS), ("SCALE", scale, SCALES)):
        if got not in known:
            return f"unknown {setting} '{got}'{meant(got, known)} (wanted one of {', '.join(known)})"
    if arguments.sweep and arguments.models:
        return f"MODELS: got '{arguments.models}', wanted none, as a sweep is over the lambdas of one model, dagpam"
    known, models = all_models(), model_names(arguments.models)
    if not (models or arguments.sweep):
        return f"MODELS: got '{arguments.models}', wanted some of {', '.join(known)}, or all"
    for model in models:
        if model not in known:
            return f"unknown model '{model}' in MODELS{meant(model, known)} (wanted some of {', '.join(known)}, or all)"
    for seed in arguments.seeds.split(","):
        if not seed.strip().isdecimal():
            return f"SEEDS: got '{seed}', wanted whole numbers separated by commas, for instance 1,2,3"
    if sentence := (arguments.jobs and wrong_jobs(arguments.jobs)) or wrong_results(arguments.results):
        return sentence
    if scale == "paper" and not gpus:
        return (
            "SCALE=paper needs a GPU and none is visible; use SCALE=small (hours of CPU) or SCALE=laptop (minutes), or "
            f"a machine with GPUs (make plan EXPERIMENT={arguments.task}_paper says what it costs there)"
        )
    for word in overrides:
        if "=" not in word:
            return f"unknown option '{word}', wanted KEY=VALUE of configs/train.yaml"
        if word.startswith(("experiment_name=", "paths.results=")):
            return f"EXTRA: got '{word}', which the table is found by; wanted RESULTS=FOLDER for a table of its own"
        if setting := SET_BY.get(word.partition("=")[0].lstrip("+")):
            return f"EXTRA: got '{word}', wanted no {word.partition('=')[0]} there: {setting} says it"
    return None


def wrong_jobs(jobs: str) -> str | None:
    """What is wrong with a number of runs side by side."""
    return None if jobs.isdecimal() and int(jobs) else f"JOBS: got '{jobs}', wanted a whole number of at least 1"


def wrong_results(results: str) -> str | None:
    """Why the page and the table could not be written there when all is trained (``gpam_suite.report.page`` refuses the
    same, and is not installed yet)."""
    folder = (ROOT / results).resolve()
    if folder == ROOT / "results":
        return f"RESULTS: got '{results}', which is what is published, wanted another folder, such as results/local"
    page = folder / "README.md"
    if page.is_file() and not page.read_text(encoding="utf-8", errors="replace").startswith("# Results"):
        return (
            f"RESULTS: got '{results}', whose README.md is another page, wanted a folder of your own results, or none"
        )
    return None


def meant(got: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(got, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def all_models() -> list[str]:
    """Those of configs/model that one recipe trains, the two of the paper's comparison first."""
    names = {path.stem for path in (ROOT / "configs" / "model").glob("*.yaml")}
    return ["softmax", "dagpam", *sorted(names - {"softmax", "dagpam", "softmax_longer", "lstm"})]


def compared(experiment: str) -> str:
    """The models that are trained where none is named: of Multi30k those of its plan."""
    return "softmax,dagpam_trainable,softmax_scaled" if experiment == MULTI30K else "softmax,dagpam"


def model_names(models: str) -> list[str]:
    named = filter(None, map(str.strip, models.split(",")))
    return all_models() if models == "all" else list(dict.fromkeys(named))


def experiment_of(task: str, scale: str, sweep: bool) -> str:
    name = MULTI30K if (task, scale) == ("nmt", "small") else f"{task}_{scale}"
    return f"{name}_lambda" if sweep else name


def announcement(arguments: argparse.Namespace, scale: str, gpus: int, jobs: int) -> str:
    """The first line: what will run, and what it cost where the published records come from."""
    experiment = experiment_of(arguments.task, scale, arguments.sweep)
    seen = f"{gpus} GPU" if gpus else "no GPU visible"
    seeds = arguments.seeds.split(",")
    what = f"{TASKS[arguments.task]}, SCALE={scale} ({seen}; meant for {SCALES[scale]})"
    if arguments.sweep:
        grid = re.findall(r"^ +model\.lambda_\w+: (.+)", SWEEP.read_text(encoding="utf-8"), re.MULTILINE)
        runs = (1 + math.prod(values.count(",") + 1 for values in grid)) * len(seeds)
        trained = "a sweep over lambda- and lambda+"
    else:
        models = model_names(arguments.models)
        runs = len(models) * len(seeds)
        trained = ", ".join(models) if len(models) < 4 else f"{len(models)} models"
    trained += f", {len(seeds)} seed(s), {jobs} run(s) at a time"
    plan = f"make plan EXPERIMENT={experiment_of(arguments.task, scale, False)}{'' if gpus else ' GPU=cpu'}"
    unknown = f"its cost is not measured yet; after make setup, {plan} estimates it"
    return f"{experiment}: {what}: {trained}; {cost(experiment, runs, jobs) or unknown}"


def cost(experiment: str, runs: int, jobs: int) -> str | None:
    """Minutes of training and processor, from the published runs of ``experiment``; None where there are none."""
    with (ROOT / "results" / "runs.csv").open(encoding="utf-8", newline="") as file:
        known = [run for run in csv.DictReader(file) if run["experiment"] == experiment and run["train_seconds"]]
    if not known:
        return None
    seconds = statistics.mean(float(run["train_seconds"]) for run in known)
    processors = ", ".join(sorted({run["gpu"] or run["processor"] for run in known}))
    total = math.ceil(runs / jobs) * seconds / 60
    return f"about {total:.0f} minutes of training, by the published runs ({processors})"


def reproduce(arguments: argparse.Namespace, scale: str, gpus: int, jobs: int, overrides: list[str]) -> int:
    """Run the missing members as Hydra multiruns, then write the table of all of them; a failed member is a row."""
    base = experiment_of(arguments.task, scale, False)
    experiment = experiment_of(arguments.task, scale, arguments.sweep)
    common = [
        f"experiment={base}",
        f"experiment_name={experiment}",
        f"gpu={'single' if gpus else 'cpu'}",
        f"paths.results={arguments.results}",
        *overrides,
    ]
    for_data = ("experiment=", "paths.", "dataset", "recipe=", "preprocessing.", "hydra.searchpath=")

    def given(beginnings: tuple[str, ...]) -> list[str]:
        return [word for word in common if word.lstrip("+~").startswith(beginnings)]

    if scale == "paper":
        call("plan.py", *given((*for_data, "fairseq.", "evaluation.")))
    prepared = call("prepare.py", *given(for_data))
    if prepared:
        return prepared
    if jobs > 1 and not any(word.startswith("launcher=") for word in overrides):
        common += ["launcher=joblib", f"hydra.launcher.n_jobs={jobs}"]
    if arguments.sweep:
        members = ["model=softmax", "sweep=lambda"]
    else:
        members = [f"model={','.join(model_names(arguments.models))}"]
    codes = [call("train.py", "-m", *common, member, f"seed={arguments.seeds}") for member in members]
    if USAGE_ERROR in codes:
        return USAGE_ERROR
    codes.append(call("tabulate.py", arguments.results))
    table = ROOT / arguments.results / "tables" / f"{experiment}.md"
    if codes[-1] or not table.is_file():  # no run ended, or they do not compare, which was said
        return max(*codes, 1)
    print(table.read_text(encoding="utf-8"))
    return max(codes)


def call(script: str, *words: str) -> int:
    process = subprocess.Popen([sys.executable, str(ROOT / "scripts" / script), *words], cwd=ROOT)
    try:
        return _exit_code(process.wait())
    except KeyboardInterrupt:  # Ctrl-C went to the script too: it saves what it trains, and says so
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(_exit_code(process.wait()))


def _exit_code(status: int) -> int:
    """As a shell has it: below zero Python names the signal that ended a process."""
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
