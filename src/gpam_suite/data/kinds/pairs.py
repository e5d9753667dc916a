"""One file of sentence pairs without a split of its own (Tatoeba): split so that no sentence stands in two parts.

Pairs that share a sentence of either language, directly or through other pairs, are a *group*; sentences that differ
in case or white space only count as one. Groups in the order of the SHA-256 of their first pair fill ``valid`` and
``test``, each with the groups that still fit, and the rest is ``train``. So the split, and the order of the lines in
it, depend on which pairs there are and on nothing else: not on their order in the file, nor on which language is the
source.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.files import sha256
from gpam_suite.common.options import nonempty, several, whole_number
from gpam_suite.data.options import SPLITS, languages_of

Pair = tuple[str, ...]  # a sentence of each language, in the order of the languages' names


def check(dataset: Mapping[str, Any]) -> None:
    """Refuse a node that does not say where the pairs are and how many of them are for validation and test."""
    node, wanted = dataset["pairs"], {"archive", "member", "columns"}
    if not isinstance(node, Mapping) or not wanted <= set(node) <= wanted | {"texts", "checksums"}:
        raise UsageError(
            f"dataset.pairs: got {node!r}, wanted {', '.join(sorted(wanted))}, and perhaps checksums, texts"
        )
    both = sorted(languages_of(dataset))
    for part in ("archive", "member"):
        nonempty(node[part], f"dataset.pairs.{part}")
    where = "dataset.pairs.columns"
    if not set(both) <= {nonempty(column, where) for column in several(node["columns"], where)}:
        raise UsageError(f"{where}: got {node['columns']!r}, wanted a list with {' and '.join(both)}")
    texts = node.get("texts") or {language: [] for language in both}
    if not isinstance(texts, Mapping) or set(texts) != set(both):
        raise UsageError(f"dataset.pairs.texts: got {texts!r}, wanted a list of files for each of {' and '.join(both)}")
    for language in both:
        several(texts[language], f"dataset.pairs.texts.{language}")
    if not isinstance(dataset["split"], Mapping) or set(dataset["split"]) != {"valid", "test"}:
        raise UsageError(f"dataset.split: got {dataset['split']!r}, wanted numbers of pairs for valid and test")
    for part, number in dataset["split"].items():
        whole_number(number, 1, f"dataset.split.{part}")


def read_table(lines: Iterable[str], columns: Sequence[str], both: Sequence[str], name: str) -> list[Pair]:
    """The pairs of a text with a pair a line, its ``columns`` separated by tabs; further columns are left out."""
    places = [columns.index(language) for language in both]
    found = []
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if len(cells) < len(columns):
            raise UsageError(f"{name}, line {number}: {len(cells)} column(s), wanted {len(columns)} separated by tabs")
        found.append(tuple(cells[place] for place in places))
    return found


def split(pairs: Sequence[Pair], dataset: Mapping[str, Any]) -> dict[tuple[str, str | None], list[str]]:
    """Lines by split and language of sorted ``pairs``; at most ``dataset.split`` of them for validation and test."""
    parts: dict[str, list[Pair]] = {part: [] for part in SPLITS}
    for group in sorted(groups(pairs), key=lambda group: sha256(("\t".join(group[0]) + "\n").encode())):
        fits = (part for part in ("valid", "test") if len(parts[part]) + len(group) <= dataset["split"][part])
        parts[next(fits, "train")] += group
    if not all(parts.values()):
        raise UsageError(f"dataset.split: got {dataset['split']}, too many for {len(pairs):,} different pairs")
    both = sorted(languages_of(dataset))
    return {(part, language): [pair[n] for pair in parts[part]] for part in SPLITS for n, language in enumerate(both)}


def groups(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs that share sentences together."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    numbers: dict[tuple[int, str], int] = {}  # of the different sentences of each side
    pairs = list(pairs)
    edges = [
        [numbers.setdefault((side, " ".join(text.split()).casefold()), len(numbers)) for side, text in enumerate(pair)]
        for pair in pairs
    ]
    graph = coo_array((np.ones(len(edges)), np.transpose(edges)), shape=(len(numbers), len(numbers)))
    _, labels = connected_components(graph, directed=False)
    found: dict[int, list[Pair]] = {}
    for pair, (left, _) in zip(pairs, edges, strict=True):
        found.setdefault(labels[left], []).append(pair)
    return list(found.values())
