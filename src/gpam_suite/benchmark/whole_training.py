"""Kind "train": fairseq's own training command as a user would start it, by the tokens a second of its log.

``stock`` is ``GPAM_FAST=0 python -m gpam_fairseq train --arch transformer_lm`` (``transformer`` for translation): stock
fairseq with its own step. A mechanism's name is ``--arch gpam_lm --attention NAME`` with the fast step, and with
``-own-step`` behind it, with fairseq's. Each sample is a process of its own; they alternate.

The text is random: uniform words of ``types``, in lines whose lengths are spread evenly around ``words``.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from gpam.attention import names
from gpam.errors import UsageError
from gpam_suite.benchmark.comparison import Contender, Maker, Settings
from gpam_suite.common.tasks import LM
from gpam_suite.config.compose import composed

UPDATES, EVERY = 16, 4  # of a sample, and between two lines of its log; the first line is not counted
_TOKENS = 150_000  # of the text: more than a sample reads
_OWN_STEP = "-own-step"
_OPTIONS = {
    "task": ("_name", "tokens_per_sample", "sample_break_mode"),
    "dataset": ("max_tokens",),
    "optimization": ("lr", "clip_norm", "max_update", "update_freq"),
    **dict.fromkeys(("model", "criterion", "optimizer", "lr_scheduler"), ()),
}
"""Group of a recipe to the options in it that a step depends on; to none where it is all of them."""


@dataclass(frozen=True)
class Case:
    """A recipe of configs/recipe, and the text that it reads."""

    recipe: str
    types: int
    words: int
    max_tokens: int | None = None  # None: the recipe's


@dataclass(frozen=True)
class Sample:
    """What one training process said: the loss of each line of its log, its seconds an update, and its peak memory."""

    losses: list[float]
    seconds: float
    tokens: float
    peak_bytes: int


def contenders(shape: Mapping[str, Any], settings: Settings) -> tuple[list[str], Maker]:
    """Of a :class:`Case`; the numbers that are compared are the losses of a training without dropout."""
    case = Case(**shape)
    cfg = composed(f"recipe={case.recipe}")
    kept = tempfile.TemporaryDirectory()
    options = flags(cfg, case)
    wanted: dict[str, list[float]] = {}

    def train(name: str, *more: str) -> Sample:
        folder = Path(kept.name)  # there for as long as a contender is
        if not (folder / "bin").is_dir():
            _write_text(folder, case, cfg.recipe.task, settings.seed)
        fast = name != "stock" and not name.endswith(_OWN_STEP)
        words = [folder / "bin", *model_words(cfg, name.removesuffix(_OWN_STEP)), *options, *more]
        return _train(words, fast, settings)

    def make(name: str) -> Contender:
        of = "softmax" if name == "stock" else name.removesuffix(_OWN_STEP)
        first: list[Sample] = []  # not counted: the one that memory is measured in

        def error() -> float:
            quiet = ("--dropout", "0", "--attention-dropout", "0")
            if of not in wanted:
                wanted[of] = train(of + _OWN_STEP, *quiet, "--attention-backend", "reference").losses
            losses = zip(train(name, *quiet).losses, wanted[of], strict=True)
            return float(np.max([abs(a - b) / b for a, b in losses]))  # NaN where one is

        def measure() -> dict[str, float]:
            first.append(train(name))
            memory = {"peak_bytes": first[0].peak_bytes} if settings.device == "cpu" else {}  # it is the process'
            return {"tokens": first[0].tokens, **memory}

        def run() -> float:
            return (first.pop() if first else train(name)).seconds

        return Contender(run, error, measure)

    return ["stock", *names(), *(name + _OWN_STEP for name in names())], make


def flags(cfg: DictConfig, case: Case) -> list[str]:
    """The recipe's options on fairseq's command line."""
    tree = OmegaConf.to_container(cfg.fairseq, resolve=True)
    tree["optimization"] |= {"max_update": UPDATES, "update_freq": [1]}
    if case.max_tokens is not None:
        tree["dataset"]["max_tokens"] = case.max_tokens
    if cfg.recipe.task == LM.name:
        width = tree["model"]["decoder_embed_dim"]
        tree["model"] |= {"decoder_input_dim": width, "decoder_output_dim": width}
    del tree["model"]["_name"]  # model_words says it
    words = []
    for group, keys in _OPTIONS.items():
        for key, value in tree.get(group, {}).items():
            if value is None or value is False or (keys and key not in keys):
                continue
            words.append(f"--{group if key == '_name' else key}".replace("_", "-"))
            if value is not True:
                words.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    return words


def model_words(cfg: DictConfig, attention: str) -> list[str]:
    """Which model: fairseq's own (``stock``), or the plugin's with a mechanism."""
    stock, ours = ("transformer_lm", "gpam_lm") if cfg.recipe.task == LM.name else ("transformer", "gpam_nmt_base")
    return ["--arch", stock] if attention == "stock" else ["--arch", ours, "--attention", attention]


def _write_text(folder: Path, case: Case, task: str, seed: int) -> None:
    draw = random.Random(seed)
    spread = case.words // 2
    lines = [list(range(at, min(at + case.words, case.types))) for at in range(0, case.types, case.words)]  # all types
    lines += [
        [draw.randrange(case.types) for _ in range(draw.randint(case.words - spread, case.words + spread))]
        for _ in range(_TOKENS // case.words)
    ]
    texts = [" ".join(f"w{word}" for word in line) + "\n" for line in lines]
    pair = ["--source-lang", "src", "--target-lang", "tgt", "--joined-dictionary"]
    kind, endings = (["--only-source"], [""]) if task == LM.name else (pair, [".src", ".tgt"])
    for ending in endings:
        (folder / f"train{ending}").write_text("".join(texts), encoding="utf-8")
        (folder / f"valid{ending}").write_text(texts[0], encoding="utf-8")  # fairseq wants one
    prefixes = ["--trainpref", folder / "train", "--validpref", folder / "valid"]
    call(["preprocess", *kind, *prefixes, "--destdir", folder / "bin"])


def _train(words: Iterable[object], fast: bool, settings: Settings) -> Sample:
    log = ["--seed", settings.seed, "--log-format", "json", "--log-interval", EVERY, "--num-workers", 0]
    log += ["--no-save", "--disable-validation", *([] if settings.device == "cuda" else ["--cpu"])]
    log += ["--distributed-world-size", 1]  # fairseq's own default is every GPU that is visible
    variables = {"GPAM_FAST": str(int(fast)), "OMP_NUM_THREADS": str(settings.threads)}
    said, peak = call(["train", *words, *log], variables)
    rows = [json.loads(line.partition("| train_inner | ")[2]) for line in said if "| train_inner | " in line]
    tokens, speed = (statistics.median(float(row[key]) for row in rows[1:]) for key in ("wpb", "wps"))
    return Sample([float(row["loss"]) for row in rows], tokens / speed, tokens, peak)


def call(words: Iterable[object], variables: Mapping[str, str] | None = None) -> tuple[list[str], int]:
    """Run ``python -m gpam_fairseq WORDS`` with further environment ``variables``: the lines that it says, and the most
    memory that it held, in bytes.

    Raises:
        UsageError: it fails, said in its last words.
    """
    command = [sys.executable, "-P", "-m", "gpam_fairseq", *map(str, words)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        process = subprocess.Popen(
            command, env={**os.environ, **(variables or {})}, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().splitlines()
    if process.returncode:
        last = lines[-1] if lines else "it said nothing"
        raise UsageError(f"{' '.join(command[2:5])} ended with {process.returncode}: {last}")
    return lines, usage.ru_maxrss * 1024
