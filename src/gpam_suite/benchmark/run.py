"""``make benchmark``: the cases that were asked for, one after another, then the page of all records."""

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError
from gpam.processor import cores
from gpam_suite.benchmark import record
from gpam_suite.benchmark.comparison import Settings, compare
from gpam_suite.benchmark.kinds import KINDS
from gpam_suite.benchmark.page import OPENING, PAGE, pages, section
from gpam_suite.benchmark.peers import backends
from gpam_suite.common.files import refuse_other_page, write_files
from gpam_suite.common.options import mapping, nonempty, one_of, several, whole_number

log = logging.getLogger(__name__)
#: Largest relative error allowed, by dtype.
TOLERANCES = {"float32": 2e-4, "float16": 1e-2, "bfloat16": 5e-2}


def benchmark(cfg: DictConfig) -> Path | None:
    """Run the cases of ``configs/benchmark.yaml`` that ``cfg.cases`` names; returns the path of the page.

    With ``cfg.contenders`` a case is not whole: it is printed alone, and what is kept of it stays (None is returned).

    Raises:
        UsageError: an unknown case, kind or contender, a field that a case does not have, no GPU where one is asked, or
            another page where that of the benchmarks would be written.
    """
    defined = OmegaConf.to_container(mapping(cfg.defined, "defined"), resolve=True)
    settings, output = _settings(cfg), Path(nonempty(cfg.output, "output"))
    refuse_other_page(output / PAGE, OPENING, "benchmarks")
    torch.set_num_threads(settings.threads)
    asked = several(cfg.contenders or [], "contenders")
    for name in chosen(cfg.cases, OmegaConf.to_container(cfg.presets), defined):
        began, case = time.perf_counter(), defined[name]
        log.info("%s", name)
        rows = measure(case, settings, asked)
        found = record.made(name, case["kind"], shape_of(case), settings, rows)
        if not asked:
            record.write(output, found)
        print(section(found))
        log.info("%s: %.0f seconds", name, time.perf_counter() - began)
    page = None if asked else write_files(pages(output))[0]
    print(f"All cases: {page}" if page else "Not kept, as contenders were chosen.")
    return page


def chosen(asked: str | Iterable[str], presets: Mapping[str, list[str]], defined: Mapping[str, Any]) -> list[str]:
    """Names of cases: ``asked`` is a preset, "all", a kind, or some names of cases."""
    kinds = {name: mapping(case, f"defined.{name}").get("kind") for name, case in defined.items()}
    groups = {kind: [name for name, own in kinds.items() if own == kind] for kind in KINDS}
    groups |= {"all": list(defined)} | presets
    found = []
    for word in [asked] if isinstance(asked, str) else several(asked, "cases"):
        found += groups.get(one_of(word, [*groups, *defined], "cases"), [word])
    if not found:
        raise UsageError(f"cases: got none, wanted some of {', '.join([*groups, *defined])}")
    return list(dict.fromkeys(found))


def shape_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """What a case says of the work itself."""
    return {key: value for key, value in case.items() if key not in ("kind", "contenders")}


def measure(case: Mapping[str, Any], settings: Settings, contenders: list[str]) -> list[dict[str, Any]]:
    """The rows of one case; ``contenders`` are those asked for, none meaning those of the case, or all."""
    shape = shape_of(case)
    kind = KINDS[one_of(case.get("kind"), KINDS, "kind of a case")]
    dtype = one_of(shape.get("dtype", "auto"), ("auto", *TOLERANCES), "dtype of a case")
    try:
        known, make = kind.contenders(shape, settings)
    except (TypeError, ValueError, RuntimeError) as error:  # a field that the kind has not, or wants, or cannot be made
        raise UsageError(f"a case of kind '{case['kind']}' got {shape}: {error}") from error
    wanted = contenders or several(case.get("contenders") or known, "contenders")
    if not contenders and settings.device != "cpu":
        ours = [name for name in backends(settings.device) if name not in wanted]  # a case names those of the CPU
        wanted = [name for name in (*wanted, *ours) if name in known]
    for name in wanted:
        one_of(name, known, "contenders")
    tolerance = kind.tolerance
    if tolerance is None:
        tolerance = TOLERANCES[dtype if dtype != "auto" else "float32" if settings.device == "cpu" else "bfloat16"]
    return compare(wanted, make, repeats=settings.repeats, tolerance=tolerance)


def _settings(cfg: DictConfig) -> Settings:
    device = cfg.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise UsageError(f"device: got '{device}', wanted auto, cpu, or cuda where torch sees a GPU")
    return Settings(
        threads=min(whole_number(cfg.threads, 1, "threads"), cores()),
        repeats=whole_number(cfg.repeats, 1, "repeats"),
        seed=whole_number(cfg.seed, 0, "seed"),
        device=device,
    )
