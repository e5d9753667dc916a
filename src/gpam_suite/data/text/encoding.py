"""Text to the tokens that a model reads, made as those of its data set were."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpam_suite.data.kinds.characters import symbol
from gpam_suite.data.prepared import Prepared
from gpam_suite.data.text.segmentation import BPE_FILES, Tokenizer, segmenter


class Encoder:
    """Tokeniser and segmentation by ``options`` (a checked ``preprocessing``), and the ``dictionary``, of one language.

    ``folder`` has the segmentation's own file; ``unit`` is "word", or "character" where a byte is a token.
    """

    def __init__(
        self, options: Mapping[str, Any], language: str | None, unit: str, dictionary: Any, folder: Path
    ) -> None:
        model = BPE_FILES.get(options["bpe"])
        self.dictionary, self._by_character = dictionary, unit == "character"
        self._tokenizer = Tokenizer(options, language)
        self._segment = segmenter(options["bpe"], folder / model if model else None)

    @classmethod
    def of(cls, prepared: Prepared, language: str | None, dictionary: Any) -> "Encoder":
        """That of one side of a data set; ``language`` None is a language model's."""
        language = language or prepared.manifest["language"]
        return cls(prepared.manifest["preprocessing"], language, prepared.unit, dictionary, prepared.folder / "bpe")

    def ids(self, text: str) -> Tensor:
        r"""Token ids of ``text``; each ``\n`` in it is the end of a line, a token like the others."""
        if self._by_character:
            names = [symbol(byte) for byte in _bytes(text)]
            return torch.tensor([self.dictionary.index(name) for name in names], dtype=torch.long)
        ids: list[int] = []
        for number, line in enumerate(text.split("\n")):
            ids += [self.dictionary.eos()] if number else []
            ids += map(self.dictionary.index, self._segment(self._tokenizer.tokenize(line)).split())
        return torch.tensor(ids, dtype=torch.long)

    def sentence(self, line: str) -> Tensor:
        """Token ids of one ``line`` and of its end."""
        return self.ids(f"{line}\n")

    def words(self, text: str) -> int:
        r"""What perplexity is counted by: words and line ends of ``text``, or its bytes where a byte is a token."""
        if self._by_character:
            return len(_bytes(text))
        return sum(len(self._tokenizer.tokenize(line).split()) for line in text.split("\n")) + text.count("\n")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # of a text that was cut between the bytes of a character, too
