"""A second test set of a translation, ``evaluation.second_test``: no part of the prepared data, kept beside a run.

:mod:`gpam_suite.evaluate.translation` scores it.
"""

import logging
from pathlib import Path

from omegaconf import DictConfig

from gpam.errors import UsageError
from gpam_suite.common.files import file_sha256, sha256, write_atomically
from gpam_suite.common.options import nonempty
from gpam_suite.data.options import plain
from gpam_suite.data.store.download import checked_file, has_checksums, obtain
from gpam_suite.data.text.lines import decode_lines

log = logging.getLogger(__name__)
SECOND_TEST = "second_test."
"""What the names of its files in a run's folder begin with."""


def keep_second_test(cfg: DictConfig, folder: Path) -> None:
    """Leave both sides of the second test set of a run's configuration in its ``folder``: before training, so that
    nothing is lost where they cannot be had.

    Raises:
        UsageError: a text that is missing, another one, or not as long as the other.
    """
    for language, text in _texts(cfg).items():
        write_atomically(second_test_file(folder, language), text)


def check_same_second_test(cfg: DictConfig, folder: Path) -> None:
    """Compare the second test set as it is now with the one that the finished run in ``folder`` was scored on.

    One whose checksums are given is the same; text that is not there any more cannot be compared.

    Raises:
        UsageError: it is other text now.
    """
    second = cfg.evaluation.get("second_test")
    if not second or has_checksums(plain(second, "evaluation.second_test")):
        return
    try:
        texts = _texts(cfg)
    except UsageError as error:
        log.warning("%s is finished, but its second test set cannot be compared: %s", folder, error)
        return
    for language, text in texts.items():
        kept = second_test_file(folder, language)
        if kept.is_file() and kept.read_bytes() != text:
            raise UsageError(
                f"{folder} is finished, but evaluation.second_test.{language} has changed since: give the new text an "
                "experiment_name of its own, or delete that folder to train again"
            )


def second_test_checksum(folder: Path) -> str:
    """One SHA-256 of both sides that are kept in ``folder``."""
    return sha256("".join(sorted(map(file_sha256, folder.glob(second_test_file(folder, "*").name)))).encode())


def second_test_file(folder: Path, language: str) -> Path:
    """One side of the second test set of the run in ``folder``."""
    return folder / f"{SECOND_TEST}{language}"


def _texts(cfg: DictConfig) -> dict[str, bytes]:
    """Language to text; nothing where there is no second test set."""
    if not cfg.evaluation.get("second_test"):
        return {}
    node = plain(cfg.evaluation.second_test, "evaluation.second_test")
    name = nonempty(node.get("name"), "evaluation.second_test.name")
    texts = {}
    for language in (cfg.dataset.source, cfg.dataset.target):
        if language not in node:
            raise UsageError(
                f"evaluation.second_test.{language} is missing: wanted mirror, urls and checksums of a text"
            )
        file = checked_file(node[language], f"evaluation.second_test.{language}")
        texts[language], _ = obtain(file, name, cfg.paths)
    lengths = [len(decode_lines(text, node[language]["mirror"])) for language, text in texts.items()]
    if len(set(lengths)) > 1:
        raise UsageError(f"evaluation.second_test: its sides have {lengths[0]} and {lengths[1]} lines, wanted as many")
    return texts
