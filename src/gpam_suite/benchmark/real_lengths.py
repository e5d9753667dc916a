"""Batches with the sentence lengths of a real training set, made up as fairseq makes them; the tokens are random.

Lengths decide what attention costs in translation: how short the rows are and how much of a batch is padding.
"""

import gzip
from pathlib import Path

import gpam_fairseq  # noqa: F401  (before fairseq)

import numpy as np
import torch
from fairseq.data import data_utils
from torch import Tensor

from gpam.errors import UsageError

PAD = 1  # of every fairseq dictionary


def real_batches(
    mirror: str | None, prefix: str, languages: tuple[str, str], max_tokens: int, vocabulary: int, seed: int
) -> list[dict[str, Tensor]]:
    """Three batches, ``source`` and ``target`` ``[sentences, length]``: those at the quartiles of an epoch's, which
    fairseq orders from short to long sentences.

    ``<mirror>/<prefix>.<language>.gz`` holds the length of each sentence, its end mark included, one a line.

    Raises:
        UsageError: the lengths are not there.
    """
    paths = [Path(mirror or "") / f"{prefix}.{language}.gz" for language in languages]
    if mirror is None or not all(path.is_file() for path in paths):
        raise UsageError(f"needs the lengths {prefix}.*.gz: set GPAM_MIRROR to the folder that has them")
    source, target = (np.array(gzip.decompress(path.read_bytes()).split(), dtype=np.int64) for path in paths)
    kept = np.flatnonzero(np.maximum(source, target) <= max_tokens)
    order = kept[np.lexsort((target[kept], source[kept]))]
    longest = np.maximum(source, target)
    made = data_utils.batch_by_size(
        order, num_tokens_fn=lambda index: longest[index], max_tokens=max_tokens, required_batch_size_multiple=8
    )
    generator = torch.Generator().manual_seed(seed)
    chosen = [made[len(made) * quarter // 4] for quarter in (1, 2, 3)]
    return [
        {"source": _tokens(source[rows], vocabulary, generator), "target": _tokens(target[rows], vocabulary, generator)}
        for rows in chosen
    ]


def _tokens(lengths: np.ndarray, vocabulary: int, generator: torch.Generator) -> Tensor:
    tokens = torch.randint(4, vocabulary, (len(lengths), int(lengths.max())), generator=generator)
    return tokens.masked_fill(torch.arange(tokens.shape[1]) >= torch.from_numpy(lengths)[:, None], PAD)
