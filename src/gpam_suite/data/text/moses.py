"""Moses tokenisation by sacremoses, word by word from memory where that gives the same.

Most words of a line have been seen before, and what becomes of one depends on little around it: whether the line begins
with it, and what the next word begins with (a full stop stays with an abbreviation, and before a small letter). So a
word is tokenised once in each of these contexts, by sacremoses, between stand-ins for its neighbours. A line in which
more matters is tokenised whole: one with apostrophes that face each other over a space (sacremoses' rules consume the
space), with control characters, or of one word.
"""

import re
from functools import cached_property
from typing import Any

_ENTANGLED = re.compile("' '|[\x00-\x1f]")
_LOWER, _DIGIT, _OTHER, _END = "a", "1", "A", ""  # classes of a next word, each its own stand-in
_KNOWN = 500_000  # words kept; then the memory starts anew


class MosesTokenizer:
    """sacremoses' tokenizer for one language: escaped special characters (``&quot;``), as fairseq's recipes use Moses.

    Args:
        hyphens: split hyphens inside words (``@-@``; the option ``-a`` of Moses).
        last_stop: split the full stop off the last word of a line whatever the word is, as later versions of Moses do
            and sacremoses does not.
    """

    def __init__(self, language: str, *, hyphens: bool = False, last_stop: bool = False) -> None:
        self.language, self.hyphens, self.last_stop = language, hyphens, last_stop
        self._plain: dict[str, str] = {}  # words that stay as they are
        self._known: dict[tuple[str, bool, str], str] = {}
        self._classes: dict[str, str] = {}

    @cached_property
    def _tokenizer(self) -> Any:
        from sacremoses import MosesTokenizer

        return MosesTokenizer(lang=self.language)

    @cached_property
    def _letters(self) -> frozenset[str]:
        return frozenset(self._tokenizer.IsAlnum)

    def tokenize(self, line: str) -> str:
        """Tokens of a line, separated by single spaces. ``line`` has single spaces only."""
        words = line.split(" ")
        if len(words) == 1 or _ENTANGLED.search(line):
            return self._split_last_stop(self._whole(line))
        tokens = []
        first = True
        for word, following in zip(words, [*words[1:], ""], strict=True):
            found = self._plain.get(word)
            if found is None:
                key = (word, first, self._class_of(following))
                found = self._known.get(key) or self._remember(key)
            tokens.append(found)
            first = False
        return self._split_last_stop(" ".join(tokens))

    def _class_of(self, word: str) -> str:
        start = word[:1]
        found = self._classes.get(start)
        if found is None:
            if not start:
                found = _END
            elif start in self._tokenizer.IsLower:
                found = _LOWER
            else:
                found = _DIGIT if start in "0123456789" else _OTHER
            self._classes[start] = found
        return found

    def _remember(self, key: tuple[str, bool, str]) -> str:
        word, first, following = key
        if self._letters.issuperset(word) and "MULTI" not in word:  # sacremoses' own mark for full stops
            if len(self._plain) >= _KNOWN:
                self._plain.clear()
            self._plain[word] = word
            return word
        line = self._whole(" ".join(filter(None, ["" if first else "a", word, following])))
        begin, end = 0 if first else 2, len(line) - (len(following) + 1 if following else 0)
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[key] = found = line[begin:end]
        return found

    def _whole(self, line: str) -> str:
        return self._tokenizer.tokenize(line, aggressive_dash_splits=self.hyphens, escape=True, return_str=True)

    def _split_last_stop(self, tokens: str) -> str:
        """``U.S.`` at the end becomes ``U.S .``; a row of full stops stays."""
        if self.last_stop and tokens.endswith(".") and tokens.rpartition(" ")[2].strip("."):
            return f"{tokens[:-1]} ."
        return tokens


class MosesNormalizer:
    """Moses' punctuation normalisation, then a space for each control character: what precedes it in WMT recipes.

    As the Perl scripts do it, which read a line with its line feed.
    """

    def __init__(self, language: str) -> None:
        self.language = language

    @cached_property
    def _normalizer(self) -> Any:
        from sacremoses import MosesPunctNormalizer

        return MosesPunctNormalizer(self.language, perl_parity=True)

    @cached_property
    def _control(self) -> Any:
        import regex  # sacremoses needs it; the standard library's has no classes of Unicode

        return regex.compile(r"\p{C}")

    def normalize(self, line: str) -> str:
        """One line, normalised."""
        return self._control.sub(" ", self._normalizer.normalize(f"{line}\n"))
