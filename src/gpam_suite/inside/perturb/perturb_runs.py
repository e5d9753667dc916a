"""``make perturb``: trained runs on perturbed input; a JSON for each run that still has its checkpoint."""

import logging
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from gpam.errors import UsageError
from gpam_suite.common.options import mapping, one_of, several, whole_number, yes_or_no
from gpam_suite.common.tasks import LM, NMT
from gpam_suite.inside.models import each_run, opened
from gpam_suite.inside.perturb.adversarial import best_substitutes, ordinary, with_substitutes
from gpam_suite.inside.perturb.noise import NOISE, generator, noisy
from gpam_suite.inside.perturb.readers import Blocks, Sentences
from gpam_suite.records import store
from gpam_suite.records.folder import Record

log = logging.getLogger(__name__)
ADVERSARIAL = "adversarial"
KINDS = (*NOISE, ADVERSARIAL)
READERS = {LM.name: Blocks, NMT.name: Sentences}
_TEXTS = {LM.name: "blocks", NMT.name: "sentences"}  # the option that says how many are read


def perturb(cfg: DictConfig) -> list[Path]:
    """Read perturbed input with every finished run below ``cfg.results``, and leave what was found as
    ``<results>/perturbed/<path of the run>.json``; returns the files that were written.

    What was made before with the same settings stays; a run without checkpoint or data is named and left out.

    Raises:
        UsageError: wrong options, no run at all, or no such experiment.
    """
    settings = {task: _settings(cfg, name) for task, name in _TEXTS.items()}
    results = Path(cfg.results)
    yes_or_no(cfg.again, "again")
    torch.set_num_threads(whole_number(cfg.threads, 1, "threads"))  # one: the same numbers on any machine

    def work(record: Record) -> dict[str, Any]:
        if record["task"] not in settings or record["protocol"].get("unit") == "document":
            raise UsageError("only language models and translation of sentences read perturbed input")
        own, run = settings[record["task"]], opened(record, cfg.paths)
        reader = READERS[record["task"]](run.model(), run.task, run.prepared, run.cfg.evaluation, own["texts"])
        return {"settings": own, **perturbed(reader, own)}

    def kept(found: dict[str, Any]) -> bool:
        return not cfg.again and found["settings"] == settings.get(found["task"])

    written = list(each_run(results, cfg.only, store.PERTURBED, work, kept))
    log.info("%d files of numbers", len(written))
    return written


def _settings(cfg: DictConfig, texts: str) -> dict[str, Any]:
    """The options of one task, checked, as they are kept beside the numbers: ``kinds``, ``rates`` above zero in
    ascending order, the ``seed`` of the noise, and how many ``texts`` are read (an option of that name)."""
    kinds, given = several(cfg.kinds, "kinds"), several(cfg.rates, "rates")
    for kind in kinds:
        one_of(kind, KINDS, "kinds")
    if not kinds:
        raise UsageError(f"kinds: got none, wanted some of {', '.join(KINDS)}")
    numbers = [rate for rate in given if isinstance(rate, int | float) and not isinstance(rate, bool)]
    rates = sorted({float(rate) for rate in numbers if 0 <= rate <= 1})
    if len(rates) != len(given) or rates[:1] != [0.0] or len(rates) < 2:
        raise UsageError(f"rates: got {given}, wanted 0 and different numbers above it, up to 1")
    return {
        "kinds": [kind for kind in KINDS if kind in kinds],
        "rates": rates[1:],
        "seed": whole_number(cfg.seed, 0, "seed"),
        "texts": whole_number(mapping(cfg.texts, "texts")[texts], 1, f"texts.{texts}"),
    }


def perturbed(reader: Blocks | Sentences, settings: dict[str, Any]) -> dict[str, Any]:
    """Scores of the clean texts, and by kind and rate of the perturbed ones, with the share of words (adversarial: of
    tokens) that differ."""
    clean = reader.read(reader.texts)
    kinds: dict[str, list[dict[str, float]]] = {}
    for kind in settings["kinds"]:
        if kind == ADVERSARIAL:
            versions = _attacked(reader, clean, settings)
        else:
            lines = (noisy(reader.texts, kind, rate, settings["seed"], reader.letters) for rate in settings["rates"])
            versions = [(reader.read(found), share) for found, share in lines]
        kinds[kind] = [
            {"rate": rate, "changed": share, **reader.score(tokens)}
            for rate, (tokens, share) in zip(settings["rates"], versions, strict=True)
        ]
    return {"texts": len(clean), "clean": reader.score(clean), "kinds": kinds}


def _attacked(
    reader: Blocks | Sentences, clean: list[Tensor], settings: dict[str, Any]
) -> list[tuple[list[Tensor], float]]:
    """For each rate the tokens of each text, attacked, and the share of all tokens that differs."""
    with torch.no_grad():
        embeddings = reader.embedding(torch.arange(len(reader.dictionary)))  # whatever kind of embedding it is
    allowed = ordinary(reader.dictionary)
    best = [
        best_substitutes(tokens, gradient, embeddings, allowed)
        for tokens, gradient in zip(clean, reader.gradients(clean), strict=True)
    ]
    roundings = [generator(settings["seed"], ADVERSARIAL, number).random() for number in range(len(clean))]
    versions = []
    for rate in settings["rates"]:
        plan = zip(clean, best, roundings, strict=True)
        attacked = [with_substitutes(tokens, *own, rate, rounding) for tokens, own, rounding in plan]
        differing = sum(int((old != new).sum()) for old, new in zip(clean, attacked, strict=True))
        versions.append((attacked, differing / max(1, sum(map(len, clean)))))
    return versions
