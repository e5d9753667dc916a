"""Generated sequences with exact answers: what is asked, what is trained, and what counts as right."""

import math
import re

import numpy as np
import pytest
import torch
from data_helpers import node
from omegaconf import OmegaConf
from runs import TINY, composed, places, run_here, sizes

from gpam.errors import UsageError
from gpam_suite.config.compose import check, folder_of
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.data import prepare
from gpam_suite.data.kinds import recall
from gpam_suite.data.prepared import fill_paths
from gpam_suite.evaluate.recall import score_recall, summed_up
from gpam_suite.records.folder import read_record
from gpam_suite.records.lines import read_history, read_scores
from gpam_suite.report.page import build
from gpam_suite.stats.bootstrap import corpus_score, resample

PLAIN = {"bpe": "none"}
FEW = {"sequences": 40, "valid_sequences": 5, "test_sequences": 10}
SMALL = {"copy": FEW | {"length": 12, "values": 5}}
SMALL["selective_recall"] = FEW | {"length": 40, "pairs": 3, "keys": 6, "values": 7}
KINDS = sorted(SMALL)


def answers_by_hand(line: str) -> list[tuple[int, str]]:
    """Place and value of every answer, by the rules of the task and not by those of the code."""
    context, asked = (part.split() for part in line.split(" = "))
    behind = len(context) + 1
    if not any(symbol.startswith("k") for symbol in asked):
        return [(behind + number, symbol) for number, symbol in enumerate(context)]
    value = {key: context[number + 1] for number, key in enumerate(context) if key.startswith("k")}
    return [(behind + 2 * turn + 1, value[key]) for turn, key in enumerate(asked[::2])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [512, 8192])
def test_sequences_have_the_length_and_are_all_different(kind, length):
    dataset = node(kind, length=length, sequences=20, valid_sequences=3, test_sequences=4)
    lines = recall.generate(dataset)
    assert {split: len(text) for (split, _), text in lines.items()} == {"train": 20, "valid": 3, "test": 4}
    everything = [line for text in lines.values() for line in text]
    assert len(set(everything)) == 27
    assert {len(line.split()) for line in everything} == {length - 1}
    assert recall.generate(dataset) == lines
    assert recall.generate(dataset | {"seed": 2}) != lines


def test_a_copy_is_a_copy_and_a_recall_asks_every_key_once_among_fillers():
    for line in recall.generate(node("copy", **SMALL["copy"]))["train", None]:
        string, again = line.split(" = ")
        assert string == again and re.fullmatch(r"(v[0-4] ){4}v[0-4]", string)
    starts, orders = set(), set()
    for line in recall.generate(node("selective_recall", **SMALL["selective_recall"]))["train", None]:
        context, asked = line.split(" = ")
        pairs = re.findall(r"(k\d) (v\d)", context)
        assert len(pairs) == len({key for key, _ in pairs}) == 3
        assert re.fullmatch(r"((\.|k\d v\d) )*(\.|k\d v\d)", context)
        assert sorted(re.findall(r"(k\d) (v\d)", asked)) == sorted(pairs) and len(asked.split()) == 6
        starts.update(number for number, symbol in enumerate(context.split()) if symbol.startswith("k"))
        orders.add([key for key, _ in pairs] == asked.split()[::2])
    assert len(starts) > 20 and orders == {True, False}


@pytest.mark.parametrize(
    ("kind", "change", "match"),
    [
        ("copy", {"length": 511}, r"dataset\.length: got 511, wanted an even number"),
        ("copy", {"length": 2}, r"dataset\.length: got 2, wanted a whole number of at least 4"),
        ("copy", {"values": 1}, r"dataset\.values: got 1"),
        ("copy", {"length": 4, "values": 5}, r"no new sequence after 5 of them; ask for fewer"),
        ("copy", {"pairs": 2}, r"unknown option dataset\.pairs"),
        ("copy", {"sequences": 0}, r"dataset\.sequences: got 0"),
        ("copy", {"task": "lm"}, r"dataset\.task=lm does not go with dataset\.kind=copy: wanted dataset\.task=recall"),
        ("selective_recall", {"length": 13}, r"dataset\.length \(with dataset\.pairs=3\): got 13, wanted .* least 14"),
        ("selective_recall", {"pairs": 7}, r"dataset\.pairs=7: there are only dataset\.keys=6 keys"),
        ("selective_recall", {"seed": -1}, r"dataset\.seed: got -1"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, kind, change, match):
    with pytest.raises(UsageError, match=match) as caught:
        prepare(node(kind, **(SMALL[kind] | change)), PLAIN, {"data": tmp_path})
    assert "\n" not in str(caught.value)


def test_a_preprocessing_and_lengths_that_do_not_fit(tmp_path):
    with pytest.raises(UsageError, match=r"preprocessing\.bpe=characters does not go with data set copy.*wanted none"):
        prepare(node("copy", **SMALL["copy"]), {"bpe": "characters"}, {"data": tmp_path})
    with pytest.raises(UsageError, match=r"context_window=3 does not apply to a recall run"):
        check(composed("dataset=copy", "evaluation.context_window=3"))
    with pytest.raises(UsageError, match=r"max_tokens=8192 is less than one sample of 9000 tokens.*dataset\.length"):
        check(composed("dataset=copy", "dataset.length=9000"))
    with pytest.raises(UsageError, match=r"evaluation\.max_tokens=8 is less than one sample of \d+ tokens"):
        check(composed("dataset=copy", "evaluation.max_tokens=8"))


def tiny(kind, base):
    """The configuration of a tiny run."""
    return composed(
        f"dataset={kind}",
        *[option for option in TINY if "bpe_size" not in option],
        *places(base),
        *(f"dataset.{key}={value}" for key, value in SMALL[kind].items()),
        *sizes("decoder", layers=1, embed_dim=16, ffn_embed_dim=16),
    )


@pytest.fixture(scope="module", params=KINDS)
def ready(request, tmp_path_factory):
    """What training and scoring of a tiny run read: fairseq's configuration, the task, prepared data."""
    from fairseq import tasks

    cfg = tiny(request.param, tmp_path_factory.mktemp(request.param))
    prepared, own = prepare(cfg.dataset, cfg.preprocessing, cfg.paths), fairseq_config(cfg)
    fill_paths(own, folder_of(cfg), prepared)
    return own, tasks.setup_task(own.task), prepared


def test_targets_are_the_answers_only(ready):
    _, task, prepared = ready
    lines = prepared.source_text("valid").read_text(encoding="utf-8").splitlines()
    dataset = task.load_dataset("valid")
    batch = dataset.collater([dataset[index] for index in range(len(dataset))])
    for index, source, target in zip(batch["id"], batch["net_input"]["src_tokens"], batch["target"], strict=True):
        line = lines[int(index)]
        assert task.dictionary.string(source[1:]) == line and source[0] == task.dictionary.eos()
        found = [(number, task.dictionary[int(token)]) for number, token in enumerate(target) if token != 1]
        assert found == answers_by_hand(line)
    assert batch["ntokens"] == len(lines) * prepared.manifest["dataset"]["length"]
    assert dataset.collater([]) == {}


def test_the_criterion_is_the_mean_over_the_answers(ready):
    from fairseq import metrics

    own, task, _ = ready
    model, criterion = task.build_model(own.model).eval(), task.build_criterion(own.criterion)
    dataset = task.load_dataset("test")
    batch = dataset.collater([dataset[index] for index in range(len(dataset))])
    loss, size, log = criterion(model, batch)
    logits, _ = model(**batch["net_input"])
    wanted, right = [], []
    for row, target in zip(logits.detach().double(), batch["target"], strict=True):
        for values, token in zip(row, target.tolist(), strict=True):
            if token != task.dictionary.pad():
                wanted.append(float(values.logsumexp(-1) - values[token]))
                right.append(int(values.argmax()) == token)
    assert size == len(wanted)
    assert loss.item() == pytest.approx(sum(wanted), rel=1e-5)
    with metrics.aggregate() as logged:
        criterion.reduce_metrics([log, log])
    assert logged["loss"].avg == pytest.approx(sum(wanted) / size / math.log(2), abs=1e-3)
    assert logged["accuracy"].avg == pytest.approx(100 * sum(right) / size, abs=1e-3)
    rows = score_recall(model, task, "test", max_tokens=64)
    assert summed_up(rows)["loss"] == pytest.approx(sum(wanted) / size, rel=1e-5)
    assert summed_up(rows)["accuracy"] == pytest.approx(100 * sum(right) / size)
    assert [row["sequence"] for row in rows] == list(range(10))


class Oracle(torch.nn.Module):
    """A causal "model" that answers by the rules of the task, but for the first answer to the contexts in ``wrong``.

    An answer that it gave wrong, and reads again, confuses it for good.
    """

    def __init__(self, task, wrong=()):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(()))
        self.dictionary, self.wrong = task.dictionary, wrong

    def max_positions(self):
        return 10_000

    def say(self, symbols: list[str]) -> str:
        if "=" not in symbols:
            return "."
        mark = symbols.index("=")
        context, asked = symbols[:mark], symbols[mark + 1 :]
        keys = any(symbol.startswith("k") for symbol in context)
        value = {key: context[number + 1] for number, key in enumerate(context[:-1]) if key.startswith("k")}
        for number, symbol in enumerate(asked):
            truth = (value[asked[number - 1]] if number % 2 else symbol) if keys else context[number]
            if symbol != truth:
                return "."
        if " ".join(context) in self.wrong and len(asked) == int(keys):
            return "="
        if keys:
            return value[asked[-1]] if len(asked) % 2 else "."
        return context[len(asked)] if len(asked) < len(context) else "."

    def forward(self, src_tokens, src_lengths=None):
        logits = torch.zeros(*src_tokens.shape, len(self.dictionary))
        for row, source in enumerate(src_tokens):
            symbols = [self.dictionary[int(token)] for token in source[1:]]
            for position in range(len(source)):
                logits[row, position, self.dictionary.index(self.say(symbols[:position]))] = 5.0
        return logits, None


def test_exact_answers_are_exact(ready):
    """All right gives 100 and 100; one wrong answer in one sequence costs one answer and one sequence, and answers said
    one after another, each read again, are right as a whole where, and only where, the score says so."""
    _, task, prepared = ready
    lines = prepared.source_text("test").read_text(encoding="utf-8").splitlines()
    perfect = summed_up(score_recall(Oracle(task), task, "test", max_tokens=100))
    assert (perfect["accuracy"], perfect["exact_match"]) == (100, 100)
    each = len(answers_by_hand(lines[0]))
    assert perfect["loss"] == pytest.approx(-math.log(math.exp(5) / (math.exp(5) + len(task.dictionary) - 1)), rel=1e-5)
    model = Oracle(task, wrong=[lines[number].split(" = ")[0] for number in (0, 3)])
    rows = score_recall(model, task, "test", max_tokens=100)
    assert summed_up(rows)["exact_match"] == 80
    assert summed_up(rows)["accuracy"] == pytest.approx(100 * (1 - 2 / (10 * each)))
    assert [row["correct"] for row in rows] == [each - (row in (0, 3)) for row in range(10)]
    for row, line in zip(rows, lines, strict=True):
        symbols = line.split()
        for position in sorted(dict(answers_by_hand(line))):
            symbols[position] = model.say(symbols[:position])
        assert (symbols == line.split()) == (row["correct"] == row["answers"])
    assert corpus_score("recall", np.array([8, 7])) == 87.5


def test_record_and_table(tmp_path):
    cfg = tiny("selective_recall", tmp_path)
    run_here(cfg)
    folder = folder_of(cfg)
    record, rows = read_record(folder), read_scores(folder)
    each = len(rows) * 3
    assert sum(row["answers"] for row in rows) == each
    assert record["metrics"]["test_accuracy"] == pytest.approx(100 * sum(row["correct"] for row in rows) / each)
    assert record["metrics"]["test_loss"] == pytest.approx(sum(row["nll"] for row in rows) / each)
    assert record["task"] == "recall"
    found = resample(record)
    assert found.unit == "sequence" and found.score == pytest.approx(record.headline)
    assert record["protocol"] | {"checkpoint": None} == {
        "unit": "answer",
        "decoding": "greedy",
        "length": 40,
        "split": "test",
        "checkpoint": None,
    }
    assert all(row["accuracy"] is not None for row in read_history(folder) if row["split"] == "valid")
    build(folder.parents[3])
    page = (folder.parents[3] / "README.md").read_text(encoding="utf-8")
    assert "Test accuracy in percent ↑ | Test sequences all right in percent ↑" in page
    assert f"| softmax | 1 | {record['metrics']['test_accuracy']:.2f} | " in page


def test_samples_must_be_sequences(ready):
    from fairseq import tasks

    own, *_ = ready
    with pytest.raises(UsageError, match=r"sample_break_mode: got none, wanted eos"):
        tasks.setup_task(OmegaConf.merge(own.task, {"sample_break_mode": "none"}))
