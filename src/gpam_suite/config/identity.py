"""The hash of a run's configuration, the folder that is named after it, and two names in it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpam_suite.common.files import safe_name, sha256

CONFIG, CHECKPOINTS = "config.yaml", "checkpoints"


def canonical(value: Any) -> Any:
    """1.0 and 1 are the same setting and hash alike."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    return value


def config_hash(config: Mapping[str, Any]) -> str:
    """First 8 hexadecimal digits of the SHA-256 of ``config`` as canonical JSON (sorted keys, no spaces).

    ``config`` is plain data (dict, list, str, int, float, bool, None). Places and the machine are left out by the
    caller; names and labels are not, though no number depends on them.
    """
    text = json.dumps(canonical(config), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode())[:8]


def run_folder(results: Path, experiment: str, model: str, options_label: str, seed: int, hash: str) -> Path:
    """Where a run writes: ``<results>/runs/<experiment>/<model>-<options_label>/seed<seed>-<hash>``."""
    return Path(results) / "runs" / safe_name(experiment) / safe_name(f"{model}-{options_label}") / f"seed{seed}-{hash}"
