"""Noise in a line of words, after Belinkov & Bisk 2018 ("Synthetic and Natural Noise Both Break Neural Machine
Translation"): one edit in a word, a word dropped, two neighbours swapped.

Every function takes the share ``rate`` (0 to 1) and a seeded generator, keeps all white space that is not of a dropped
word, and gives the same line for the same seed. At rate 0 a line stays as it is; a blank line always does, and no other
becomes blank. Words consume the same draws at every rate, so what a small rate edits or drops a larger one does too.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

_MARK = re.compile(r"<\w+>")  # "<unk>" in published texts stands for a word, and is none
_RARE = 0.001  # of all letters: a rarer one is of another language


def edited(line: str, rate: float, draw: Random, letters: str) -> str:
    """Each word that has a letter gets, with probability ``rate``, one edit: two neighbouring letters swapped, one
    letter deleted, inserted or replaced (each as likely, where the word allows it; a word never vanishes). What is
    inserted comes from ``letters``; other characters than letters, and marks such as ``<unk>``, stay."""
    parts = re.split(r"(\s+)", line)
    for place in range(0, len(parts), 2):
        chosen, own = draw.random() < rate, Random(draw.getrandbits(64))
        if chosen and any(map(str.isalpha, parts[place])) and not _MARK.fullmatch(parts[place]):
            parts[place] = _edit(parts[place], own, letters)
    return "".join(parts)


def dropped(line: str, rate: float, draw: Random, letters: str = "") -> str:
    """Each word is left out with probability ``rate``, and the white space behind it; one word stays in any case."""
    words = re.findall(r"^\s+|\S+\s*", line)
    fates = [draw.random() for _ in words]
    last = max((fate for fate, word in zip(fates, words, strict=True) if word.strip()), default=1.0)
    limit = min(rate, last)
    return "".join(word for fate, word in zip(fates, words, strict=True) if fate >= limit or not word.strip())


def swapped(line: str, rate: float, draw: Random, letters: str = "") -> str:
    """From left to right, each word that was not moved yet changes places with the next one with probability ``rate``:
    up to two words in a swap, so about ``2 rate / (1 + rate)`` of them move."""
    parts = re.split(r"(\s+)", line)
    places = [place for place in range(0, len(parts), 2) if parts[place]]
    fates = [draw.random() for _ in places]
    at = 0
    while at + 1 < len(places):
        if fates[at] < rate:
            here, there = places[at], places[at + 1]
            parts[here], parts[there] = parts[there], parts[here]
            at += 1
        at += 1
    return "".join(parts)


NOISE: dict[str, Callable[[str, float, Random, str], str]] = {
    "characters": edited,
    "dropped": dropped,
    "swapped": swapped,
}
"""Name of a kind to its function of line, rate, generator and letters."""


def alphabet(lines: Iterable[str]) -> str:
    """The letters of a text but capitals (all, where it has no others), without those rarer than one in a thousand."""
    counts = Counter(letter for line in lines for letter in line if letter.isalpha())
    counts = Counter({letter: count for letter, count in counts.items() if not letter.isupper()}) or counts
    least = min(_RARE * counts.total(), max(counts.values(), default=0))
    return "".join(sorted(letter for letter, count in counts.items() if count >= least))


def generator(seed: int, kind: str, text: int) -> Random:
    """What the ``text``-th text is perturbed with: it depends on nothing else, so every model reads the same noise."""
    return Random(f"{seed}/{kind}/{text}")


def noisy(texts: Sequence[str], kind: str, rate: float, seed: int, letters: str) -> tuple[list[str], float]:
    """``texts`` with noise, line by line, and the share of words that differ."""
    found = []
    for number, text in enumerate(texts):
        draw = generator(seed, kind, number)
        found.append("\n".join(NOISE[kind](line, rate, draw, letters) for line in text.split("\n")))
    words = sum(len(text.split()) for text in texts)
    return found, sum(map(changed, texts, found)) / max(1, words)


def changed(before: str, after: str) -> int:
    """Words of ``before`` that ``after`` lacks, or has another word in the place of."""
    old, new = before.split(), after.split()
    return sum(a != b for a, b in zip(old, new, strict=True)) if len(old) == len(new) else len(old) - len(new)


def _edit(word: str, draw: Random, letters: str) -> str:
    own = [place for place, character in enumerate(word) if character.isalpha()]

    def swap() -> str:
        pairs = [place for place in own if word[place + 1 : place + 2].isalpha() and word[place] != word[place + 1]]
        if not pairs:
            return word  # and nothing is drawn
        place = draw.choice(pairs)
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]

    def delete() -> str:
        place = draw.choice(own)
        return word[:place] + word[place + 1 :]

    def insert() -> str:
        place = draw.choice(own) + draw.randrange(2)
        return word[:place] + draw.choice(letters) + word[place:]

    def replace() -> str:
        place = draw.choice(own)
        others = [letter for letter in letters if letter != word[place]]
        return word[:place] + draw.choice(others or [word[place]]) + word[place + 1 :]

    edits = [swap, delete, insert, replace]
    draw.shuffle(edits)
    return next(found for edit in edits if (found := edit()) not in (word, ""))
