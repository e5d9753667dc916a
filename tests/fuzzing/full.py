"""Everything that is read, and the full counts of ``make soak``."""

from typing import Any

from fuzzing import of_archives, of_configs, of_models, of_records, of_text
from fuzzing.guided import CASES, NOT_INSTALLED, guide
from fuzzing.target import Target, fuzz, memory_folder
from gpam.errors import UsageError

TARGETS: tuple[Target, ...] = (
    *of_text.TARGETS,
    *of_archives.TARGETS,
    *of_records.TARGETS,
    *of_models.TARGETS,
    *of_configs.TARGETS,
)


def drawn() -> dict[str, Any]:
    """Cases that hypothesis draws, others in every run, of each target in full number."""
    return _figures({target.name: _fuzzed(target) for target in TARGETS})


def guided() -> dict[str, Any]:
    """Files that atheris changes towards new branches of each reader, in full number."""
    if NOT_INSTALLED:
        raise UsageError(NOT_INSTALLED)
    return _figures({name: _guided(name, cases) for name, cases in CASES.items()})


def _fuzzed(target: Target) -> int:
    print(f"{target.name} ...", flush=True)
    with memory_folder() as folder:
        return fuzz(target, target.full, folder / "parent" / "case", repeatable=False)


def _guided(name: str, cases: int) -> int:
    print(f"{name} ...", flush=True)
    return guide(name, cases)


def _figures(cases: dict[str, int]) -> dict[str, Any]:
    return {
        "cases": sum(cases.values()),
        "targets": cases,
        "each": ", ".join(f"{name} {number:,}" for name, number in cases.items()),
    }
