"""fairseq's dictionaries read from files that somebody else may have made."""

import re
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.data.binarise import RESERVED

_LINE = re.compile(r"([^\s]+) (\d{1,18})", re.ASCII)


def load_dictionary(path: Path) -> Any:
    """The fairseq ``Dictionary`` in a file: a word and its count a line, ids counting from 4 in the order of the lines.

    Raises:
        UsageError: not such a file, a word twice, or one that fairseq reserves.
    """
    import gpam_fairseq.compat  # noqa: F401  (must come before fairseq)

    # isort: split
    from fairseq.data import Dictionary

    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"dictionary {path} cannot be read ({error}); get the file again") from None
    dictionary = Dictionary()
    seen = {*RESERVED, "<unk>"}
    for number, line in enumerate(text.split("\n")[: -1 if text.endswith("\n") else None], start=1):
        match = _LINE.fullmatch(line)
        if match is None or len(match[1].split()) != 1:
            raise UsageError(f"dictionary {path}, line {number}: got '{line[:40]}', wanted a word and its count")
        if match[1] in seen:
            raise UsageError(f"dictionary {path}, line {number}: '{match[1]}' is there already, or reserved by fairseq")
        seen.add(match[1])
        dictionary.add_symbol(match[1], int(match[2]))
    return dictionary
