"""Interpolated modified Kneser-Ney language models (Chen and Goodman 1998): what counting alone reaches on a text.

::

    P_m(w | h) = max(c(hw) - D(c(hw)), 0) / c(h.) + g(h) P_{m-1}(w | h without its first token),   P_0(w) = 1 / types
    g(h) = (D1 N1(h.) + D2 N2(h.) + D3 N3+(h.)) / c(h.)
    Y = n1 / (n1 + 2 n2),   D1 = 1 - 2 Y n2 / n1,   D2 = 2 - 3 Y n3 / n2,   D3 = 3 - 4 Y n4 / n3

``c`` counts occurrences in the highest order; below it, in how many different tokens an n-gram continues, or
occurrences where it starts a line, as nothing stands before. ``n_i`` n-grams of an order have ``c = i``, and
``N_i(h.)`` of those that start with ``h`` (``3+``: three or more). Where some ``n_i`` from 1 to 4 is zero, as in a
small text, the discounts are 0.5, 1 and 1.5. Each line is a text of its own.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from gpam.errors import UsageError
from gpam_suite.common.files import safe_name, sha256, write_atomically
from gpam_suite.common.options import whole_number
from gpam_suite.common.strict_json import summed
from gpam_suite.common.tasks import LM
from gpam_suite.data import Prepared, prepare
from gpam_suite.data.binarise import EOS_ID, RESERVED, dictionary_name, load_ids
from gpam_suite.data.options import SPLITS, check_preprocessing
from gpam_suite.data.text.counting import UNK
from gpam_suite.data.text.lines import file_name, read_lines

log = logging.getLogger(__name__)
_FALLBACK = (0.0, 0.5, 1.0, 1.5)


@dataclass(frozen=True)
class _Order:
    """The n-grams of one order, sorted by ``keys`` (context's id times types, plus the last token's id)."""

    keys: np.ndarray
    discounted: np.ndarray  # max(c - D(c), 0) of each n-gram
    total: np.ndarray  # c(h.) of each context, by its id
    left: np.ndarray  # g(h) c(h.) of each context, by its id


class KneserNey:
    """A model of ``order`` tokens, counted from the lines of a training text.

    Where no line has as many tokens as ``order`` asks for, the longest n-grams are those of the highest order: the
    probabilities are the same.

    Args:
        lines: arrays of token ids from 0 to ``types - 1``, each with its end-of-line token.
        types: how many tokens there are.
    """

    def __init__(self, lines: list[np.ndarray], order: int, types: int) -> None:
        tokens, place = _stream(lines, types)
        self.order, self.types = min(order, int(place.max()) + 1), types
        before = np.zeros(len(tokens), dtype=np.int64)  # the id of the context of each position
        counted = []
        for size in range(1, self.order + 1):
            valid = place >= size - 1  # the line's start has place 0
            keys, first, ids, counts = np.unique(
                (before * (types + 1) + tokens)[valid], return_index=True, return_inverse=True, return_counts=True
            )
            at = np.flatnonzero(valid)
            own = np.full(len(tokens), -1)
            own[at] = ids
            counted.append((keys, at[first], own, counts))
            before = np.concatenate([[-1], own[:-1]])
        self._orders = [self._discount(size, counted, place, tokens) for size in range(1, self.order + 1)]

    def _discount(self, size: int, counted: list, place: np.ndarray, tokens: np.ndarray) -> _Order:
        keys, first, _, counts = counted[size - 1]
        if size < self.order:
            longer, at = counted[size][1], counted[size - 1][2]
            continued = np.bincount(at[longer], minlength=len(keys))
            counts = np.where(place[first] == size - 1, counts, continued)
        counts = np.where(tokens[first] == self.types, 0, counts)  # a line's start is never predicted
        discounts = _discounts(counts)
        taken = discounts[np.minimum(counts, 3)]
        contexts = keys // (self.types + 1)
        return _Order(
            keys,
            np.maximum(counts - taken, 0.0),
            np.bincount(contexts, weights=counts),
            np.bincount(contexts, weights=taken),
        )

    def negative_log_likelihoods(self, lines: list[np.ndarray]) -> np.ndarray:
        """``-ln P`` of every token of ``lines``, in nats, one array for all."""
        tokens, place = _stream(lines, self.types)
        probability = np.full(len(tokens), 1 / self.types)
        before = np.zeros(len(tokens), dtype=np.int64)
        for size, known in enumerate(self._orders, start=1):
            seen = (place >= size - 1) & (before >= 0) & (before < len(known.total))
            context = np.where(seen, before, 0)
            seen &= known.total[context] > 0
            wanted = context * (self.types + 1) + tokens
            found = np.minimum(np.searchsorted(known.keys, wanted), len(known.keys) - 1)
            there = (known.keys[found] == wanted) & (place >= size - 1) & (before >= 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(there, known.discounted[found], 0.0) + known.left[context] * probability
                probability = np.where(seen, share / known.total[context], probability)
            before = np.concatenate([[-1], np.where(there, found, -1)[:-1]])
        return -np.log(probability[tokens != self.types])


def _stream(lines: list[np.ndarray], types: int) -> tuple[np.ndarray, np.ndarray]:
    """All lines, each behind a start that has the id ``types``; the place of every token in its line."""
    lengths = np.array([len(line) + 1 for line in lines])
    tokens = np.concatenate([part for line in lines for part in ([types], line)]).astype(np.int64)
    return tokens, np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _discounts(counts: np.ndarray) -> np.ndarray:
    """``[0, D1, D2, D3]``."""
    n = [int((counts == many).sum()) for many in range(5)]
    if not all(n[1:]):
        return np.array(_FALLBACK)
    y = n[1] / (n[1] + 2 * n[2])
    return np.array([0.0, *(many - (many + 1) * y * n[many + 1] / n[many] for many in (1, 2, 3))]).clip(min=0)


def evaluate_ngram(cfg: DictConfig) -> Path:
    """Write what an n-gram of ``cfg.ngram`` tokens reaches on ``cfg.dataset``, as perplexities per word, to
    :func:`reference_file`; a file that is there stays.

    Raises:
        UsageError: a data set that is no language model's text by word, or no number of tokens.
    """
    whole_number(cfg.ngram, 1, "ngram")
    if cfg.dataset.task != LM.name or cfg.dataset.kind == "characters":
        raise UsageError(
            f"dataset={cfg.dataset.name}: an n-gram is counted over the words of a language model's text, line by "
            "line, which this is not; choose another data set, such as dataset=ptb"
        )
    prepared = prepare(cfg.dataset, cfg.preprocessing, cfg.paths)
    manifest = prepared.manifest
    path = reference_file(Path(cfg.paths.results), manifest, manifest["preprocessing"], cfg.ngram)
    if not path.is_file():
        train, *others = _ids(prepared)
        types = max(int(line.max()) for lines in (train, *others) for line in lines) + 1
        model = KneserNey(train, cfg.ngram, types)
        found = {"model": f"interpolated modified Kneser-Ney, {cfg.ngram}-gram", "unit": prepared.unit}
        found["preprocessing"] = manifest["preprocessing"]
        for split, lines in zip(("valid", "test"), others, strict=True):
            nll = float(model.negative_log_likelihoods(lines).sum())
            found[f"{split}_perplexity"] = math.exp(nll / prepared.words(split))
        write_atomically(path, summed(found, indent=2))
    log.info("%s: %s", path, path.read_text(encoding="utf-8").strip())
    return path


def reference_file(results: Path, data: Mapping[str, Any], preprocessing: Any, order: int) -> Path:
    """``<results>/references/<data set>-<text>-<pieces>-<n>gram.json``: where the scores of an n-gram stand that was
    counted on a text (``data`` has its name and checksum) as ``preprocessing`` cuts it."""
    text = data["checksum"][:8]
    pieces = sha256(json.dumps(check_preprocessing(preprocessing), sort_keys=True).encode())[:8]
    return results / "references" / f"{safe_name(data['name'])}-{text}-{pieces}-{order}gram.json"


def _ids(prepared: Prepared) -> list[list[np.ndarray]]:
    """The lines of training, validation and test as ids from 0, in the order of their first training occurrence; all
    tokens that the models do not know either (their dictionary has not) are one more type."""
    end, words = RESERVED[EOS_ID], load_ids(prepared.bin / dictionary_name())
    known: dict[str, int] = {end: 0}
    splits = []
    for split in SPLITS:
        texts = read_lines(prepared.folder / "bpe" / file_name(split, None))
        lines = [[*(token if token in words else UNK for token in line.split()), end] for line in texts]
        if split == "train":
            for line in lines:
                for token in line:
                    known.setdefault(token, len(known))
            unknown = known.get(UNK, len(known))
        splits.append([np.array([known.get(token, unknown) for token in line]) for line in lines])
    return splits
