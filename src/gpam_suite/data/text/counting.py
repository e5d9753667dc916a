"""What is in a text: lines, words, characters, and how often each word."""

import json
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from gpam_suite.data.store.stages import Piece, Stage, Stages

UNK = "<unk>"
COUNTS = "counts.json"


def count(stages: Stages, text: Piece, name: str, *, each_word: bool) -> Stage:
    """The stage that counts ``text`` (called ``name`` where somebody is told).

    Its facts are ``lines``, ``words`` (with one end-of-sentence mark a line: the denominator of word perplexity),
    ``characters`` (with the line feeds) and ``unk`` (words that are ``<unk>``); with ``each_word`` also ``types``
    (different words, the end-of-sentence mark being one of them), and a file for :func:`load_counts`.
    """

    def work(folder: Path) -> dict[str, int]:
        total: Counter[str] = Counter()
        facts: Counter[str] = Counter()
        for found, words in stages.workers.results(partial(_counts, each_word), text.path, f"count {name}"):
            facts.update(found)
            total.update(words)
        if each_word:
            (folder / COUNTS).write_text(json.dumps(total, ensure_ascii=False, sort_keys=True), encoding="utf-8")
            facts["types"] = len(total) + 1
        return dict(facts)

    return stages.run("count", {"text": text, "each_word": each_word}, work)


def _counts(each_word: bool, lines: list[str]) -> tuple[dict[str, int], Counter[str]]:
    words: Counter[str] = Counter()
    facts = {"lines": len(lines), "characters": sum(map(len, lines)) + len(lines), "unk": 0, "words": len(lines)}
    for line in lines:
        found = line.split()
        facts["words"] += len(found)
        facts["unk"] += found.count(UNK)
        if each_word:
            words.update(found)
    return facts, words


def load_counts(stages: Iterable[Stage]) -> Counter[str]:
    """The words of some counted texts together."""
    total: Counter[str] = Counter()
    for stage in stages:
        total.update(json.loads((stage.folder / COUNTS).read_text(encoding="utf-8")))
    return total
