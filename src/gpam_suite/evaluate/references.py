"""What the references of a test set are: the text itself says how it is scored."""

import re
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from gpam.errors import UsageError
from gpam_suite.common.tasks import TASKS
from gpam_suite.data import Prepared
from gpam_suite.data.second_test import second_test_file
from gpam_suite.data.text.lines import read_lines

TOKENISED, LOWER_CASED = "tokenised", "lower-cased"
_APART = 0.99
"""Share of full stops that stand apart in tokenised text; in raw text hardly any does. (Other stops say nothing: French
sets them apart.)"""
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
"""Letters of Thai, Lao, Burmese, Khmer and Japanese's own."""


def kind_of(references: Sequence[str]) -> list[str]:
    """What the lines of a test set are, judged by the text itself: ``tokenised`` where the full stops at their ends
    stand apart from the words, ``lower-cased`` where no letter is a capital; nothing where they are raw, cased text."""
    ends = [line.rstrip() for line in references]
    words = [end.rstrip(".") for end in ends if end.endswith(".")]
    apart = [word[-1].isspace() for word in words if word]
    text = "".join(ends)
    tokenised = [TOKENISED] if apart and sum(apart) >= _APART * len(apart) else []
    return tokenised + ([LOWER_CASED] if any(map(str.islower, text)) and text == text.lower() else [])


def tokeniser_of(references: Sequence[str]) -> str:
    """Of sacreBLEU's tokenisers the one for raw text of this script, judged by the text itself: ``zh`` where most
    letters are Chinese, ``char`` where a fifth are of another script without spaces, else ``13a``."""
    letters = [letter for letter in "".join(references) if letter.isalpha()]
    if 5 * len(_UNSPACED.findall("".join(letters))) > len(letters):
        return "char"
    return "zh" if 2 * sum("\u4e00" <= letter <= "\u9fff" for letter in letters) > len(letters) else "13a"


def check_references(evaluation: DictConfig, prepared: Prepared, folder: Path) -> None:
    """Refuse tokenised references where plain text is made of the hypotheses: no score would mean anything.

    Args:
        folder: where the second test set is kept, if there is one.

    Raises:
        UsageError: they are of different kinds.
    """
    tokenizer = prepared.manifest["preprocessing"]["tokenizer"]
    if not TASKS[prepared.task].parallel or tokenizer == "none":
        return
    texts = {"the test set": prepared.reference("test")}
    if second := evaluation.get("second_test"):
        texts[f"second_test={second.name}"] = second_test_file(folder, prepared.target_lang)
    for name, path in texts.items():
        if TOKENISED in kind_of(read_lines(path)):
            raise UsageError(
                f"the references of {name} are tokenised (their full stops stand apart from the words), and "
                f"preprocessing.tokenizer={tokenizer} makes plain text of the translations: give the references as "
                "they were written, or tokenised text on both sides with preprocessing.tokenizer=none"
            )
