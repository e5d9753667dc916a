"""Shared by the tests of the data stage: small corpora on disk, the shipped nodes, the folder of real data."""

import functools
import os
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gpam_suite.config.compose import composed

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "dataset"
PLAIN = {"tokenizer": "none", "lowercase": False, "bpe": "none", "bpe_size": 0, "joined_dictionary": False}

GERMAN = ["ein Hund läuft .", "zwei Katzen schlafen auf dem Sofa .", "der Hund schläft .", "die Katze läuft ."] * 5
ENGLISH = ["a dog runs .", "two cats sleep on the sofa .", "the dog sleeps .", "the cat runs ."] * 5


def mirror() -> Path:
    """The folder of real data, or a skip with the reason."""
    folder = Path(os.environ.get("GPAM_MIRROR") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no local copies of the public data sets: set GPAM_MIRROR to their folder")
    return folder


def preparations(data: Path) -> list[str]:
    """Names of the finished preparations in a data folder, and of whatever lies there that should not."""
    if not data.is_dir():
        return []
    return sorted(path.name for path in data.iterdir() if path.name not in (".lock", "downloads", "stages"))


def node(name: str, **changes: Any) -> dict[str, Any]:
    """The shipped ``configs/dataset/<name>.yaml``, composed, with some values changed."""
    return OmegaConf.to_container(_composed(root=f"dataset/{name}").dataset) | changes


def write(folder: Path, **files: list[str] | bytes) -> Path:
    """Files in ``folder``: keyword ``train_de`` is the file ``train.de``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else "".join(line + "\n" for line in content).encode()
        (folder / name.replace("_", ".")).write_bytes(data)
    return folder


def parallel(folder: Path, **changes: list[str] | bytes) -> dict[str, Any]:
    """A ``local_parallel`` node over a small German-English corpus in ``folder``, some files replaced."""
    files = {f"{split}_{language}": text for split in ("train", "valid", "test") for language, text in _SIDES.items()}
    return node("local_parallel", folder=str(write(folder, **(files | changes))), source="de", target="en")


def monolingual(folder: Path, **changes: list[str] | bytes) -> dict[str, Any]:
    """A ``local_lm`` node over a small English corpus in ``folder``, some files replaced."""
    files = {f"{split}_txt": ENGLISH for split in ("train", "valid", "test")}
    return node("local_lm", folder=str(write(folder, **(files | changes))))


_composed = functools.cache(composed)
_SIDES = {"de": GERMAN, "en": ENGLISH}
