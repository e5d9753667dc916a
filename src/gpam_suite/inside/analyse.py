"""``make analyse``: look at what there is, and leave the numbers as JSON."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from gpam.analysis import negative_mass, sharpness
from gpam.errors import UsageError
from gpam_suite.common.options import mapping, one_of, several, whole_number, yes_or_no
from gpam_suite.common.tasks import NMT
from gpam_suite.inside import lemma_checks, measures
from gpam_suite.inside.depth import analyse_depth, check_settings, is_analysed
from gpam_suite.inside.hulls import analyse_hulls
from gpam_suite.inside.models import each_run, opened
from gpam_suite.inside.observe import observed
from gpam_suite.inside.texts import SPLIT, Text, pairs_given, pairs_of, texts
from gpam_suite.records import store
from gpam_suite.records.folder import Record

log = logging.getLogger(__name__)
PARTS = ("hulls", "depth", "runs")
_PAIRS = 200  # of a translation's test set, whose alignment is looked at


def analyse(cfg: DictConfig) -> list[Path]:
    """The parts that ``cfg.parts`` names; but for hulls, what was looked at before by the same settings is looked at
    again only with ``again=true``.

    Returns:
        The files of numbers that were written.
    """
    for part in (parts := several(cfg.parts, "parts")):
        one_of(part, PARTS, "parts")
    if not parts:
        raise UsageError(f"parts: got none, wanted some of {', '.join(PARTS)}")
    for task, count in mapping(cfg.texts, "texts").items():
        whole_number(count, 1, f"texts.{task}")
    for languages, pairs in mapping(cfg.pairs, "pairs").items():
        for pair in several(pairs, f"pairs.{languages}"):
            if len(several(pair, f"pairs.{languages}")) != 2:
                raise UsageError(f"pairs.{languages}: got {pair}, wanted two texts, as in [[Hallo.,Hello.]]")
    if "depth" in parts:
        check_settings(cfg)
    results, written = Path(cfg.results), []
    yes_or_no(cfg.again, "again")
    torch.set_num_threads(whole_number(cfg.threads, 1, "threads"))  # one: the same numbers on any machine
    if "runs" in parts:  # first: cfg.only may name no experiment
        written += _analyse_runs(results, cfg)
    if "hulls" in parts:
        written.append(analyse_hulls(results))
    if "depth" in parts and (cfg.again or not is_analysed(results, cfg)):
        written.append(analyse_depth(results, cfg))
    log.info("%d files of numbers", len(written))
    return written


def _analyse_runs(results: Path, cfg: DictConfig) -> Iterator[Path]:
    """A run whose checkpoint or data is not there is left out, and keeps what was found before."""
    pairs = OmegaConf.to_container(cfg.pairs)

    def work(record: Record) -> dict[str, Any]:
        if record["task"] not in cfg.texts:
            raise UsageError(f"a run of task '{record['task']}', which has nothing to look at here")
        if not record["attention_modules"]:
            raise UsageError("a network without attention, which has nothing to look at here")
        run = opened(record, cfg.paths)
        model = run.model()
        found = look(model, run.task, run.prepared, cfg.texts[record["task"]])
        translates = record["task"] == NMT.name
        return found | ({"alignment": alignment(model, run.task, run.prepared, pairs)} if translates else {})

    def kept(found: dict[str, Any]) -> bool:
        read, pictures = found["texts"], found.get("alignment", {})
        same = read.get("asked", read["count"]) == cfg.texts.get(found["task"])
        return not cfg.again and same and pictures.get("asked", pairs) == pairs

    return each_run(results, cfg.only, store.FOLDER, work, kept)


def look(model: nn.Module, task: Any, prepared: Any, count: int) -> dict[str, Any]:
    """What :mod:`measures` and :mod:`lemma_checks` say of ``model`` reading ``count`` texts of its test set.

    ``streams``, ``modules``, ``lemmas``; ``texts``: how many of how many tokens, and how many were asked for.
    """
    chosen = texts(task, prepared, count)
    observations = [observed(model, text.arguments) for text in chosen]
    tokens = [text.target.numel() for text in chosen]
    return {
        "texts": {"split": SPLIT, "asked": count, "count": len(chosen), "tokens": tokens},
        "streams": measures.streams(observations),
        "modules": measures.modules(observations),
        "lemmas": lemma_checks.check(observations),
    }


def alignment(model: nn.Module, task: Any, prepared: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the cross attention of ``model`` does; empty where there is none.

    ``pairs``: of evenly spread sentences the ``tokens`` of the source, and the share of ``negative`` weight and
    ``sharpness``, ``[layer, head]``. ``sentences``: of the ``given`` pairs (:func:`pairs_given`) the ``words`` of both
    sides, and ``weights`` ``[head, target, source]`` of the last layer.
    ``asked``: what was given.
    """
    pairs = [
        {
            "tokens": text.arguments["src_tokens"].numel(),
            "negative": negative_mass(cross).round(decimals=4).tolist(),
            "sharpness": sharpness(cross).mean(-1).round(decimals=4).tolist(),
        }
        for text, cross in _seen(model, pairs_of(task, _PAIRS))
    ]
    pictures = [
        {"words": text.words, "weights": cross[-1].round(decimals=3).tolist()}
        for text, cross in _seen(model, pairs_given(task, prepared, given))
    ]
    return {"pairs": pairs, "sentences": pictures, "asked": given} if pairs else {}


def _seen(model: nn.Module, chosen: list[Text]) -> Iterator[tuple[Text, Tensor]]:
    """Texts with the weights ``[layers, heads, target, source]`` of their cross attention."""
    for text in chosen:
        modules = observed(model, text.arguments).attention.values()
        cross = [one.weights.double() for one in modules if one.role == "cross"]
        if cross:
            yield text, torch.stack(cross)
