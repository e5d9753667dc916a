"""The merges that subword-nmt learns, with the next one taken from a heap.

subword-nmt looks through all pairs for the most frequent one at each merge, which is most of its time. Here a heap
gives it. The counts are kept by subword-nmt's own functions, its pruning of rare pairs included, so the merges are the
same to the last (a test compares them).
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

Pair = tuple[str, str]
END = "</w>"  # subword-nmt's mark of the end of a word
_LEAST = 2  # a pair seen once is not merged
_PRUNE_EVERY = 100


class _Last:
    """Orders pairs from the last to the first: of equally frequent pairs subword-nmt merges the last."""

    __slots__ = ("pair",)

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def __lt__(self, other: "_Last") -> bool:
        return self.pair > other.pair


class _Frequencies(defaultdict):
    """Pair to count, with the most frequent pair at hand."""

    def __init__(self, counts: dict[Pair, int]) -> None:
        super().__init__(int, counts)
        self._changed: set[Pair] = set()
        self._heap = [(-count, _Last(pair), pair) for pair, count in counts.items()]
        heapq.heapify(self._heap)

    def __setitem__(self, pair: Pair, count: int) -> None:
        super().__setitem__(pair, count)
        self._changed.add(pair)

    def best(self) -> Pair | None:
        """The most frequent pair, of several the last; None where there is none."""
        for pair in self._changed:
            if (count := self.get(pair)) is not None:
                heapq.heappush(self._heap, (-count, _Last(pair), pair))
        self._changed.clear()
        while self._heap:
            count, _, pair = self._heap[0]
            if self.get(pair) == -count:
                return pair
            heapq.heappop(self._heap)  # the pair has another count by now, or was pruned
        return None


def merges(counts: Counter[str], size: int) -> Iterator[Pair]:
    """The first ``size`` merges of words with their counts; fewer where no pair is seen twice."""
    from subword_nmt.learn_bpe import get_pair_statistics, prune_stats, replace_pair, update_pair_statistics

    words: list[Any] = [((*word[:-1], word[-1] + END), count) for word, count in counts.most_common()]
    all_pairs, places = get_pair_statistics(words)
    frequent = _Frequencies(all_pairs)
    threshold = max(all_pairs.values(), default=0) / 10
    for number in range(size):
        pair = frequent.best()
        if pair is None or (number and frequent[pair] < threshold):  # a pair that was pruned may be more frequent
            prune_stats(frequent, all_pairs, threshold)
            frequent = _Frequencies(all_pairs)
            pair = frequent.best()
            if pair is None:
                return
            threshold = frequent[pair] * number / (number + 10_000)
            prune_stats(frequent, all_pairs, threshold)
        if frequent[pair] < _LEAST:
            return
        yield pair
        update_pair_statistics(pair, replace_pair(pair, words, places), frequent, places)
        frequent[pair] = 0
        if number % _PRUNE_EVERY == 0:
            prune_stats(frequent, all_pairs, threshold)
