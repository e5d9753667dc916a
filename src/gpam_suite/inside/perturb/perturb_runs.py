"""``make perturb``: trained runs on perturbed input; a JSON for each run that still has its checkpoint."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from gpam.errors import UsageError, did_you_mean
from gpam_suite.common.options import whole_number
from gpam_suite.common.tasks import LM, NMT
from gpam_suite.config.compose import stored
from gpam_suite.config.run_paths import CONFIG
from gpam_suite.inside.perturb.adversarial import best_substitutes, ordinary, replaced, table
from gpam_suite.inside.perturb.kinds import ADVERSARIAL, FOLDER, KINDS, Settings
from gpam_suite.inside.perturb.language_model import Blocks
from gpam_suite.inside.perturb.translation import Sentences
from gpam_suite.inside.runs import each_run, facts, opened
from gpam_suite.records.folder import Record, read_records

log = logging.getLogger(__name__)
READERS = {LM.name: Blocks, NMT.name: Sentences}


class Reader(Protocol):
    """Texts of a test set, and a model that reads them."""

    texts: list[str]
    letters: str
    embedding: nn.Module
    dictionary: Any

    def read(self, texts: list[str]) -> list[Tensor]:
        """Token ids of each text."""

    def score(self, tokens: list[Tensor]) -> dict[str, float]:
        """The model's scores when it reads these tokens in the place of ``texts``."""

    def gradients(self, tokens: list[Tensor]) -> list[Tensor]:
        """Gradient of the loss with respect to each text's embeddings, ``[tokens, width]`` each."""


def perturb(cfg: DictConfig) -> list[Path]:
    """Read perturbed input with every finished run below ``cfg.results``; returns the files of numbers that
    were written.

    Raises:
        UsageError: wrong options, or no such experiment.
    """
    settings = {task: _settings(cfg, name) for task, name in ((LM.name, "blocks"), (NMT.name, "sentences"))}
    results, started = Path(cfg.results), time.monotonic()
    torch.set_num_threads(cfg.threads)  # one: numbers must not depend on the cores of the machine
    finished = [record for record in read_records(results, cfg.only) if record["status"] == "finished"]
    written = list(perturb_runs(results, finished, cfg.paths, settings, again=cfg.again))
    log.info("%d files of numbers after %.0f s", len(written), time.monotonic() - started)
    return written


def perturb_runs(
    results: Path, finished: list[Record], paths: Any, settings: dict[str, Settings], *, again: bool
) -> Iterator[Path]:
    """Leave ``<results>/perturbed/<path of the run>.json`` for each of ``finished``; yields the files written.

    What was made before with the same settings stays; a run without checkpoint or data is named and left out.
    """

    def work(record: Record) -> dict[str, Any]:
        if record["task"] not in settings or record["protocol"].get("unit") == "document":
            raise UsageError("only language models and translation of sentences read perturbed input")
        model, task, prepared = opened(record, paths)
        own = settings[record["task"]]
        evaluation = stored(record.folder / CONFIG).evaluation
        reader = READERS[record["task"]](model, task, prepared, evaluation, own.texts)
        return {**facts(record), "settings": own.stored(), **perturbed(reader, own)}

    def kept(found: dict[str, Any]) -> bool:
        return not again and found["task"] in settings and found["settings"] == settings[found["task"]].stored()

    return each_run(results, finished, FOLDER, work, kept)


def perturbed(reader: Reader, settings: Settings) -> dict[str, Any]:
    """Scores of the clean texts, and by kind and rate of the perturbed ones, with the share of words (adversarial: of
    tokens) that differ."""
    clean = reader.read(reader.texts)
    kinds: dict[str, list[dict[str, float]]] = {}
    for kind in settings.kinds:
        perturbation = _attack(reader, clean, settings) if kind == ADVERSARIAL else _noise(reader, kind, settings)
        kinds[kind] = []
        for rate in settings.rates:
            tokens, share = perturbation(rate)
            kinds[kind].append({"rate": rate, "changed": share, **reader.score(tokens)})
    return {"texts": len(clean), "clean": reader.score(clean), "kinds": kinds}


Perturbation = Callable[[float], tuple[list[Tensor], float]]
"""Rate to the tokens of each text, and the share of all that differs."""


def _noise(reader: Reader, kind: str, settings: Settings) -> Perturbation:
    def perturbation(rate: float) -> tuple[list[Tensor], float]:
        noisy, share = settings.noisy(kind, rate, reader.texts, reader.letters)
        return reader.read(noisy), share

    return perturbation


def _attack(reader: Reader, clean: list[Tensor], settings: Settings) -> Perturbation:
    embeddings, allowed = table(reader.embedding, len(reader.dictionary)).cpu(), ordinary(reader.dictionary)
    found = [
        best_substitutes(tokens, gradient, embeddings, allowed)
        for tokens, gradient in zip(clean, reader.gradients(clean), strict=True)
    ]
    roundings = [settings.draw(ADVERSARIAL, number).random() for number in range(len(clean))]

    def perturbation(rate: float) -> tuple[list[Tensor], float]:
        attacked = [
            replaced(tokens, *best, rate, rounding)
            for tokens, best, rounding in zip(clean, found, roundings, strict=True)
        ]
        differing = sum(int((old != new).sum()) for old, new in zip(clean, attacked, strict=True))
        return attacked, differing / max(1, sum(map(len, clean)))

    return perturbation


def _settings(cfg: DictConfig, texts: str) -> Settings:
    """The options of one task, checked; ``texts`` is the name of the option that says how many of them are read."""
    for kind in cfg.kinds:
        if kind not in KINDS:
            raise UsageError(f"kinds: got '{kind}'{did_you_mean(kind, KINDS)}, wanted some of {', '.join(KINDS)}")
    numbers = [rate for rate in cfg.rates if isinstance(rate, int | float) and not isinstance(rate, bool)]
    rates = sorted({float(rate) for rate in numbers if 0 <= rate <= 1})
    if not cfg.kinds:
        raise UsageError(f"kinds: got none, wanted some of {', '.join(KINDS)}")
    if len(rates) != len(cfg.rates) or rates[:1] != [0.0] or len(rates) < 2:
        raise UsageError(f"rates: got {list(cfg.rates)}, wanted 0 and different numbers above it, up to 1")
    return Settings(
        tuple(kind for kind in KINDS if kind in cfg.kinds),
        tuple(rates[1:]),
        whole_number(cfg.seed, 0, "seed"),
        whole_number(cfg.texts[texts], 1, f"texts.{texts}"),
    )
