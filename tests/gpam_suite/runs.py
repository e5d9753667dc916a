"""Tiny runs for the tests: composed configurations, and text of one's own that trains in seconds."""

import contextlib
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from omegaconf import DictConfig, OmegaConf

from gpam_suite.common.files import write_atomically
from gpam_suite.common.places import ROOT
from gpam_suite.config.compose import composed, folder_of, identity
from gpam_suite.config.identity import CONFIG
from gpam_suite.data import prepare
from gpam_suite.run import processes
from gpam_suite.run.outcomes import rank_log
from gpam_suite.run.run import run

LIMIT = 600  # seconds to wait for another process, on a machine with other work


def sizes(*stacks: str, **values: int) -> list[str]:
    """Overrides of a model's sizes: ``sizes("decoder", layers=1)``."""
    return [f"++fairseq.model.{stack}_{name}={value}" for stack in stacks for name, value in values.items()]


TINY = [
    "tracking.mode=disabled",
    "++fairseq.optimization.max_update=4",
    "++fairseq.common.log_interval=1",
    "++fairseq.dataset.max_tokens=256",
    "++fairseq.dataset.validate_interval_updates=2",
    "++fairseq.checkpoint.save_interval_updates=2",
    "preprocessing.bpe_size=60",
]
TINY_LM = [
    *TINY,
    "dataset=local_lm",
    "++fairseq.task.tokens_per_sample=16",
    "evaluation.context_window=6",
    *sizes("decoder", layers=2, embed_dim=16, ffn_embed_dim=32, attention_heads=2),
]
TINY_NMT = [
    *TINY,
    "dataset=local_parallel",
    "dataset.source=cs",
    "dataset.target=en",
    *sizes("encoder", "decoder", layers=1, embed_dim=16, ffn_embed_dim=32, attention_heads=2),
]


def places(folder: Path) -> list[str]:
    """Everything that a run writes, under ``folder``."""
    return [f"paths.results={folder}/results", f"paths.data={folder}/data"]


def tiny_words(base: Path, *overrides: str, task: str = "lm") -> list[str]:
    """The command line of a language model or a translation (``nmt``) that trains in seconds; text and results lie in
    ``base``."""
    text = base / f"text-{task}"
    own, languages = {"lm": (TINY_LM, (None,)), "nmt": (TINY_NMT, ("cs", "en"))}[task]
    if not text.is_dir():
        write_text(text, languages)
    return [*own, *places(base), f"dataset.folder={text}", *overrides]


def tiny(base: Path, *overrides: str, task: str = "lm") -> DictConfig:
    """The configuration of :func:`tiny_words`."""
    return composed(*tiny_words(base, *overrides, task=task))


def train_here(cfg: DictConfig) -> Path:
    """Train and evaluate in this process, as a run's worker does; returns the run's folder."""
    from gpam_suite.run import worker

    folder = folder_of(cfg)
    prepared = prepare(cfg.dataset, cfg.preprocessing, cfg.paths)
    write_atomically(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(identity(cfg))))
    worker.main(folder, prepared.folder)
    return folder


def start_here(cfg: DictConfig, folder: Path, data: Path, place: None) -> processes.Worker:
    """In the place of ``processes._start``: the worker in this process, as one of its own takes seconds to import what
    it needs."""
    from gpam_suite.run import worker

    with rank_log(folder, 0).open("a", encoding="utf-8") as log, contextlib.redirect_stderr(log):
        try:
            code = worker.work(folder, data)
        except Exception:
            traceback.print_exc()
            code = 1
    ended = SimpleNamespace(returncode=code, poll=lambda: code, wait=lambda: code, kill=lambda: None)
    return processes.Worker(0, ended, rank_log(folder, 0))


def run_here(cfg: DictConfig) -> float | None:
    """``run`` with :func:`start_here`."""
    with mock.patch.object(processes, "_start", start_here):
        return run(cfg)


def call(script: str, *words: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
    """A file of ``scripts/`` in a process of its own, on one thread."""
    own = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, str(ROOT / "scripts" / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=own)


def until(happened: Callable[[], Any]) -> Any:
    """What ``happened`` gives once that is true; to wait for another process."""
    deadline = time.monotonic() + LIMIT
    while not (found := happened()):
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.05)
    return found


def write_text(folder: Path, languages: tuple[str | None, ...] = (None,)) -> Path:
    """``{train,valid,test}.txt``, or ``{train,...}.<language>`` with lines that belong together."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["".join(pair) for pair in zip("kplmnrst" * 3, "aeiouaei" * 3, "nrsltkmp" * 3, strict=True)]
    draw = random.Random(1)
    for split, lines in (("train", 120), ("valid", 12), ("test", 12)):
        text = [[draw.choice(words) for _ in range(draw.randint(3, 9))] for _ in range(lines)]
        for number, language in enumerate(languages):
            rows = [line if number == 0 else [word.upper() for word in reversed(line)] for line in text]
            name = f"{split}.{language or 'txt'}"
            (folder / name).write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def alive(process: int | str) -> bool:
    """Whether a process of that number is there, and has not ended unnoticed (a zombie)."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
