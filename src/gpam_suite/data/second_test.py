"""A second test set of a translation, ``evaluation.second_test``: no part of the prepared data, kept beside a run.

:mod:`gpam_suite.evaluate.translation` scores it.
"""

from pathlib import Path

from omegaconf import DictConfig

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.common.options import nonempty
from gpam_suite.common.tasks import TASKS
from gpam_suite.data.options import plain
from gpam_suite.data.store.download import checked_file, obtain
from gpam_suite.data.text.lines import decode_lines

SECOND_TEST = "second_test."
"""What the names of its files in a run's folder begin with."""


def keep_second_test(cfg: DictConfig, folder: Path) -> None:
    """Leave both sides of the second test set of a run's configuration in its ``folder``: before training, so that
    nothing is lost where they cannot be had.

    Raises:
        UsageError: not a translation, or a text that is missing, another one, or not as long as the other.
    """
    if not cfg.evaluation.get("second_test"):
        return
    node = plain(cfg.evaluation.second_test, "evaluation.second_test")
    name = nonempty(node.get("name"), "evaluation.second_test.name")
    if not TASKS[cfg.dataset.task].parallel:
        raise UsageError(f"second_test={name} is a translation, and {cfg.dataset.name} is not: leave it out")
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
    for language, text in texts.items():
        write_atomically(second_test_file(folder, language), text)


def second_test_file(folder: Path, language: str) -> Path:
    """One side of the second test set of the run in ``folder``."""
    return folder / f"{SECOND_TEST}{language}"
