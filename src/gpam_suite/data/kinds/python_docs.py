"""English prose that every Python interpreter carries: its documentation topics and its docstrings.

One document is one topic of the language reference (``pydoc_data.topics``) or the docstrings of one module of the
standard library, in the order of the source. Sources are parsed, never imported; test packages are left out. A
paragraph becomes one line. Left out are paragraphs that are not prose (code, interpreter sessions, tables, fewer than
``_MIN_WORDS`` words) and paragraphs that mostly repeat text already taken, wherever it stands, so that nothing in
valid and test has been seen in train. The text varies with the Python release and what a distributor left out of it.
"""

import ast
import hashlib
import platform
import re
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.common.files import sha256
from gpam_suite.data.options import SPLITS

# A word is a run of letters with apostrophes inside, a run of digits, or any other sign by itself.
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|[^\w\s]|_+")
_TEST_PACKAGES = {"test", "tests", "idle_test", "__pycache__"}
_MIN_WORDS = 6
_SHINGLE = 5  # words; a paragraph is a repetition if more than half of its runs of this length are known
_PERCENT = {"valid": 5, "test": 5}


def fingerprint() -> dict[str, str]:
    """What the text depends on: the Python release and the sources found (names and sizes), and this module."""
    listing = "".join(f"{name} {path.stat().st_size}\n" for name, path in _sources())
    return {
        "python": platform.python_version(),
        "standard_library": sha256(listing.encode()),
        "generator": sha256(Path(__file__).read_bytes()),
    }


def generate(words: str) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
    """Lines and first lines of the documents (from 0) of each split.

    Args:
        words: ``split`` puts spaces between words and punctuation, ``raw`` leaves the text as it is (for a tokeniser
            or a sub-word segmentation of ``preprocessing``).
    """
    if words not in ("split", "raw"):
        raise UsageError(f"dataset.words: got {words!r}, wanted split or raw")
    lines: dict[str, list[str]] = {split: [] for split in SPLITS}
    documents: dict[str, list[int]] = {split: [] for split in SPLITS}
    known: set[tuple[str, ...]] = set()
    for name, text in _documents():
        split = _split_of(name)
        paragraphs = [paragraph for paragraph in _prose(text) if _is_new(paragraph, known)]
        if paragraphs:
            documents[split].append(len(lines[split]))
            lines[split] += paragraphs if words == "raw" else [" ".join(_WORD.findall(line)) for line in paragraphs]
    return lines, documents


def _split_of(name: str) -> str:
    """The split of a document, by a hash of its name, so that it does not depend on what else there is."""
    bucket = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 100
    if bucket < _PERCENT["valid"]:
        return "valid"
    return "test" if bucket < _PERCENT["valid"] + _PERCENT["test"] else "train"


def _sources() -> list[tuple[str, Path]]:
    """Dotted name and file of every module of the standard library that is written in Python, in order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for top in sys.stdlib_module_names:
        if (root / f"{top}.py").is_file():
            found.append((top, root / f"{top}.py"))
        for path in (root / top).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            if top != "pydoc_data" and not _TEST_PACKAGES.intersection(parts):
                found.append((".".join(parts), path))
    return sorted(found)


def _documents() -> Iterator[tuple[str, str]]:
    """Name and text of every document, in order."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UsageError("this Python comes without its documentation topics (pydoc_data): use another one") from error
    for name in sorted(topics):
        yield f"topic {name}", topics[name]
    for name, path in _sources():
        docstrings = list(_docstrings(ast.parse(path.read_bytes())))
        if docstrings:
            yield f"module {name}", "\n\n".join(docstrings)


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Docstrings in and below ``node``, in the order of the source."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text:
            yield text
    for child in ast.iter_child_nodes(node):
        yield from _docstrings(child)


def _prose(text: str) -> Iterator[str]:
    """The paragraphs of ``text`` that are English prose, each on one line."""
    for block in re.split(r"\n\s*\n", text.expandtabs()):
        lines = [line.strip() for line in textwrap.dedent(block).split("\n")]
        if any(line.startswith((">>>", "...", "|", "+-", "$")) for line in lines):
            continue
        paragraph = " ".join(line for line in lines if not re.fullmatch(r"[\W_]*", line))  # no underlines, rules
        paragraph = re.sub(r"^(?:[*\-•]|\d+[.)])\s+", "", " ".join(paragraph.split()))
        tokens = _WORD.findall(paragraph)
        letters = [token for token in tokens if token[0].isalpha()]
        # prose is mostly words, most of them in lower case, and ends like a sentence
        lower = sum(word.islower() for word in letters)
        if (
            len(letters) >= _MIN_WORDS
            and len(letters) >= 0.62 * len(tokens)
            and lower >= 0.75 * len(letters)
            and paragraph[-1] in ".:!?)"
        ):
            yield paragraph


def _is_new(paragraph: str, known: set[tuple[str, ...]]) -> bool:
    """Whether at least half of the paragraph's runs of words are new; notes those runs as known."""
    words = [word.lower() for word in _WORD.findall(paragraph) if word[0].isalnum()]
    runs = {tuple(words[i : i + _SHINGLE]) for i in range(max(1, len(words) - _SHINGLE + 1))}
    new = runs - known
    known |= new
    return 2 * len(new) >= len(runs)
