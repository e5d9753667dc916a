"""``records/<case>.<device>.json``: all samples of a case, with what they were taken on and with.

A ratio of two times is another one on another processor, so each keeps its own.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpam_suite.benchmark.comparison import Settings
from gpam_suite.common.files import write_atomically
from gpam_suite.common.strict_json import summed
from gpam_suite.records import archives, environment, store

FOLDER = "records"
PACKAGES = ("python", "torch", "fairseq")


def made(
    name: str, kind: str, shape: Mapping[str, Any], settings: Settings, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """The record of the rows of :func:`gpam_suite.benchmark.comparison.compare`."""
    versions = environment.versions()
    return {
        "case": name,
        "kind": kind,
        "shape": dict(shape),
        "settings": asdict(settings),
        "hardware": environment.hardware(),
        "versions": {package: versions[package] for package in PACKAGES},
        "git": environment.git(),
        "rows": rows,
    }


def write(output: Path, record: Mapping[str, Any]) -> None:
    """Keep it, in place of what the same device has measured of that case before."""
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)", "", device(record)).lower()).strip("-")
    path = output / FOLDER / f"{record['case']}.{slug}.json"
    write_atomically(path, summed(record, indent=1))


def read(output: Path) -> list[dict[str, Any]]:
    """All records of a folder, by the names of their case and device."""
    return [store.read(path) for path in archives.find(output / FOLDER, "*.json")]


def device(found: Mapping[str, Any]) -> str:
    """The name of the processor or the GPU that the samples were taken on."""
    return found["hardware"]["gpu" if found["settings"]["device"] == "cuda" else "processor"]
