"""``records/<case>.json``: all samples of a case, with what they were taken on and with."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpam_suite import environment
from gpam_suite.benchmark.settings import Settings
from gpam_suite.records import write_atomically

FOLDER = "records"
PACKAGES = ("python", "torch", "fairseq", "sacremoses", "subword-nmt")


def write(
    output: Path, name: str, kind: str, shape: Mapping[str, Any], settings: Settings, rows: list[dict[str, Any]]
) -> Path:
    """Keep the rows of :func:`gpam_suite.benchmark.comparison.compare`."""
    record = {
        "case": name,
        "kind": kind,
        "shape": dict(shape),
        "settings": {key: value for key, value in asdict(settings).items() if key != "paths"},
        "hardware": environment.hardware(),
        "versions": {package: environment.versions()[package] for package in PACKAGES},
        "rows": rows,
    }
    return write_atomically(output / FOLDER / f"{name}.json", json.dumps(record, indent=1, sort_keys=True) + "\n")


def read(output: Path) -> list[dict[str, Any]]:
    """All records of a folder, by the name of their case."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((output / FOLDER).glob("*.json"))]
