"""Text to the tokens that a model reads, made as those of its data set were."""

from typing import Any

import torch
from torch import Tensor

from gpam_suite.data.characters import symbol
from gpam_suite.data.prepared import Prepared
from gpam_suite.data.segmentation import BPE_FILES, Segmenter, Tokenizer


class Encoder:
    """Tokeniser, segmentation and ``dictionary`` of one side of a data set; ``language`` None is a language model's."""

    def __init__(self, prepared: Prepared, language: str | None, dictionary: Any) -> None:
        options = prepared.manifest["preprocessing"]
        model = BPE_FILES.get(options["bpe"])
        self.dictionary, self._by_character = dictionary, prepared.unit == "character"
        self._tokenizer = Tokenizer(options, language or prepared.manifest["language"])
        self._segmenter = Segmenter(options["bpe"], prepared.folder / "bpe" / model if model else None)

    def ids(self, text: str) -> Tensor:
        r"""Token ids of ``text``; each ``\n`` in it is the end of a line, a token like the others."""
        if self._by_character:
            names = [symbol(byte) for byte in _bytes(text)]
            return torch.tensor([self.dictionary.index(name) for name in names], dtype=torch.long)
        ids: list[int] = []
        for number, line in enumerate(text.split("\n")):
            ids += [self.dictionary.eos()] if number else []
            ids += map(self.dictionary.index, self._segmenter.segment(self._tokenizer.tokenize(line)).split())
        return torch.tensor(ids, dtype=torch.long)

    def words(self, text: str) -> int:
        r"""What perplexity is counted by: words and line ends of ``text``, or its bytes where a byte is a token."""
        if self._by_character:
            return len(_bytes(text))
        return sum(len(self._tokenizer.tokenize(line).split()) for line in text.split("\n")) + text.count("\n")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # of a text that was cut between the bytes of a character, too
