"""What ``config.yaml`` says of a run, and the one rule by which runs share a table.

Everything in a run's identity is the seed, an option of its model, one of :data:`MAY_DIFFER`, one of
:data:`NAMES_A_ROW`, what only follows another key (:data:`FOLLOWS`), or must be equal over the table. A
key that nobody thought of must be equal.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpam_suite.common.tasks import NMT
from gpam_suite.config.device_batches import samples

MAX_TOKENS, UPDATE_FREQ = "fairseq.dataset.max_tokens", "fairseq.optimization.update_freq"
BATCH = "tokens per update"
"""``max_tokens`` times ``update_freq``; of samples of one length what fairseq takes of it. How it is cut up belongs to
the machine (:mod:`gpam_suite.config.device_batches`)."""

_SAMPLES = {"max_tokens": None, "batch_size": None, "required_batch_size_multiple": 8}
"""fairseq's options of how many samples make a batch, and what they are where nothing is said."""
_WHERE = "says where data and files lie; the checksum of the text must be equal"
_LOGGING = "says what is logged"
_MACHINE = "the machine; an update holds the same tokens on any of them"
_MEMORY = "how many texts are evaluated at once, which changes no sum over them"
_KEPT = "says which files stay; what was evaluated is in the protocol"
MAY_DIFFER = {
    r"seed": "what a row is taken over",
    r"model\..*": "the model, its attention and options, which name its row",
    r"gpu\.(name|devices|threads)": _MACHINE,
    r"fairseq\.common\.cpu": _MACHINE,
    r"fairseq\.distributed_training\..*": _MACHINE,
    r"fairseq\.dataset\.(num_workers|data_buffer_size)": "who reads the batches ahead; they are the same",
    r"fairseq\.dataset\.(max_tokens|batch_size)_valid|evaluation\.max_tokens": _MEMORY,
    r"fairseq\.common\.(log_\w+|no_progress_bar|\w+_logging|tensorboard_logdir|wandb_project|aim_\w+)": _LOGGING,
    r"fairseq\.checkpoint\.(keep_\w+|no_epoch_checkpoints|write_checkpoints_asynchronously)": _KEPT,
    r"fairseq\.checkpoint\.save_dir|fairseq\.task\.data|dataset\.folder": _WHERE,
    r"(dataset|evaluation)\.(.*\.)?(urls|mirror)(\..*)?": _WHERE,
}
"""Keys (whole names, as regular expressions) that may differ within a table, and why."""
NAMES_A_ROW = (
    r"fairseq\.(model|optimization|optimizer|lr_scheduler|criterion)\..*",
    r"fairseq\.dataset\.(batch_size|max_tokens)",  # the second where no one number of tokens makes a batch
    re.escape(BATCH),
)
"""Keys of how a model is built and trained: runs that differ in them are measured alike, as rows of their own, which
are named after what differs."""
FOLLOWS = {"fairseq.lr_scheduler.total_num_update": "fairseq.optimization.max_update"}
"""Keys that say nothing of their own where they have the value of another."""
_EQUAL_IN_TRANSLATION = ("evaluation.max_tokens",)
"""Keys that may differ, but for translations: how long a hypothesis may become is counted from the longest source in
its batch."""

_MAY_DIFFER, _NAMES_A_ROW = (re.compile("|".join(patterns)) for patterns in (MAY_DIFFER, NAMES_A_ROW))


def names_a_row(key: str) -> bool:
    """Whether runs that differ in ``key`` are rows of one table; else they cannot share one."""
    return _NAMES_A_ROW.fullmatch(key) is not None


def table_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted name to value of all in a run's configuration that names its row or must be equal over the table."""
    found = all_settings(config)
    if batch := tokens_per_update(found):
        found[BATCH] = batch
    apart = [MAX_TOKENS, UPDATE_FREQ] if batch else []
    apart += [key for key, other in FOLLOWS.items() if key in found and found[key] == found.get(other)]
    decides = _EQUAL_IN_TRANSLATION if found.get("dataset.task") == NMT.name else ()
    apart += [key for key in found if _MAY_DIFFER.fullmatch(key) and key not in decides]
    return {key: value for key, value in found.items() if key not in apart}


def tokens_per_update(settings: Mapping[str, Any]) -> int | None:
    """:data:`BATCH` of :func:`all_settings`; None where a batch is not counted in tokens, or changes between epochs."""
    most, frequencies = settings.get(MAX_TOKENS), settings.get(UPDATE_FREQ) or [1]
    if most and (length := settings.get("fairseq.task.tokens_per_sample")):
        given = {name: settings.get(f"fairseq.dataset.{name}", usual) for name, usual in _SAMPLES.items()}
        most = length * samples(given, length)
    return most * frequencies[0] if most and len(set(frequencies)) == 1 else None


def all_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted name to value of everything in a run's configuration."""
    return {name: value for key, node in config.items() for name, value in _leaves(node, key)}


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{name}.{key}")
    elif node is not None:
        yield name, node
