"""Kneser-Ney: the formula counted once more with dictionaries, in fractions, and two lines by hand."""

import json
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from runs import composed, places, write_text

from gpam.errors import UsageError
from gpam_suite.evaluate.kneser_ney import KneserNey, evaluate_ngram

TYPES = 7


def text(lines, seed=1):
    """Lines of tokens 1 to 6, small ones likelier, each with the end 0."""
    draw = random.Random(seed)
    weights = [32, 16, 8, 4, 2, 1]
    return [[*draw.choices(range(1, TYPES), weights, k=draw.randint(1, 5)), 0] for _ in range(lines)]


class Counted:
    """The same model as the formula reads, of tuples: ``None`` starts a line."""

    def __init__(self, lines, order):
        self.order, self.counts, self.discounts = order, {}, {}
        lines = [[None, *line] for line in lines]
        seen = {
            size: Counter(tuple(line[i : i + size]) for line in lines for i in range(len(line) - size + 1))
            for size in range(1, order + 1)
        }
        for size in range(1, order + 1):
            if size == order:
                self.counts[size] = dict(seen[size])
            else:
                before = Counter(gram[1:] for gram in seen[size + 1])
                self.counts[size] = {
                    gram: count if gram[0] is None else before[gram] for gram, count in seen[size].items()
                }
            self.counts[size].pop((None,), None)
            n = Counter(self.counts[size].values())
            if not all(n[count] for count in (1, 2, 3, 4)):
                self.discounts[size] = [0, Fraction(1, 2), 1, Fraction(3, 2)]
                continue
            y = Fraction(n[1], n[1] + 2 * n[2])
            self.discounts[size] = [0] + [max(i - (i + 1) * y * Fraction(n[i + 1], n[i]), 0) for i in (1, 2, 3)]

    def probability(self, token, context):
        if len(context) >= self.order:
            context = context[len(context) - self.order + 1 :]
        return self._of(token, tuple(context))

    def _of(self, token, context):
        lower = self._of(token, context[1:]) if context else Fraction(1, TYPES)
        size = len(context) + 1
        after = {gram: count for gram, count in self.counts[size].items() if gram[:-1] == context}
        total = sum(after.values())
        if not total:
            return lower
        discount = self.discounts[size]
        own = after.get((*context, token), 0)
        left = sum(discount[min(count, 3)] for count in after.values())
        return (max(own - discount[min(own, 3)], 0) + left * lower) / total


@pytest.mark.parametrize("order", [2, 3, 5, 9])  # no line has nine tokens
def test_every_token_has_the_probability_of_the_formula(order):
    lines, others = text(300), text(40, seed=2)
    model, counted = KneserNey([np.array(line) for line in lines], order, TYPES), Counted(lines, order)
    found = np.exp(-model.negative_log_likelihoods([np.array(line) for line in others]))
    wanted = [counted.probability(line[i], [None, *line[:i]]) for line in others for i in range(len(line))]
    np.testing.assert_allclose(found, [float(p) for p in wanted], rtol=1e-12)


def test_two_lines_by_hand():
    """``1 2 0`` and ``1 3 0``: bigrams (start, 1) twice, four others once; 1, 2, 3 continue one token each, 0 two."""
    model = KneserNey([np.array([1, 2, 0]), np.array([1, 3, 0])], 2, 4)
    found = np.exp(-model.negative_log_likelihoods([np.array([1, 2, 2])]))
    one, two = (1 - 0.5 + (3 * 0.5 + 1) / 4) / 5, (1 - 0.5 + (3 * 0.5 + 1) / 4) / 5
    after_start = (2 - 1 + 1 * one) / 2
    after_one = (1 - 0.5 + (0.5 + 0.5) * two) / 2
    after_two = (0 + 0.5 * two) / 1
    np.testing.assert_allclose(found, [after_start, after_one, after_two], rtol=1e-12)


def test_a_data_set_has_its_reference_row(tmp_path):
    folder = write_text(tmp_path / "text")
    words = ["dataset=local_lm", f"dataset.folder={folder}", "preprocessing.bpe=none", "preprocessing.bpe_size=0"]
    cfg = composed(*words, "ngram=2", *places(tmp_path), root="ngram")
    path = evaluate_ngram(cfg)
    found = json.loads(path.read_text())
    words = sorted({*(folder / "train.txt").read_text().split(), "end"})

    def lines(split):
        text = (folder / f"{split}.txt").read_text().splitlines()
        return [np.array([words.index(word) for word in [*line.split(), "end"]]) for line in text]

    model = KneserNey(lines("train"), 2, len(words))
    for split in ("valid", "test"):
        wanted = np.exp(model.negative_log_likelihoods(lines(split)).mean())  # a line's end counts as a word
        assert found[f"{split}_perplexity"] == pytest.approx(wanted, rel=1e-12)
    assert found["model"] == "interpolated modified Kneser-Ney, 2-gram" and found["unit"] == "word"
    before = path.stat().st_mtime_ns
    assert evaluate_ngram(cfg) == path and path.stat().st_mtime_ns == before
    cfg.preprocessing.min_count = 2  # the same text, cut otherwise
    assert evaluate_ngram(cfg) != path


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        *(
            (f"dataset={dataset}", f"dataset={dataset}: an n-gram is counted over the words")
            for dataset in ("tinyshakespeare", "cldr_de_en", "copy")
        ),
        ("ngram=a", "ngram: got 'a', wanted a whole number of at least 1"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_is_prepared(tmp_path, override, sentence):
    cfg = composed(override, f"paths.data={tmp_path}", root="ngram")
    with pytest.raises(UsageError, match=sentence):
        evaluate_ngram(cfg)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [0, 2])
def test_unknown_and_rare_words_are_one_type(tmp_path, count):
    folder = write_text(tmp_path / "text")
    for split, word in (("train", "rare"), ("test", "unseen")):
        with (folder / f"{split}.txt").open("a") as file:
            file.write(f"{word}\n")
    own = [f"dataset.folder={folder}", "preprocessing.bpe=none", "preprocessing.bpe_size=0", "ngram=2"]
    cfg = composed("dataset=local_lm", *own, f"preprocessing.min_count={count}", *places(tmp_path), root="ngram")
    found = json.loads(evaluate_ngram(cfg).read_text())
    words = set((folder / "train.txt").read_text().split()) - ({"rare"} if count else set())
    types = {word: number for number, word in enumerate(["<unk>", "end", *sorted(words)])}

    def lines(split):
        text = (folder / f"{split}.txt").read_text().splitlines()
        return [np.array([types.get(word, 0) for word in [*line.split(), "end"]]) for line in text]

    losses = KneserNey(lines("train"), 2, len(types)).negative_log_likelihoods(lines("test"))
    assert found["test_perplexity"] == pytest.approx(math.exp(losses.mean()), rel=1e-9)
