"""The benchmark: numbers before times, counts against torch's and against memory of known size, pages from records."""

import itertools
import json
import math
import sys
import time

import gpam_fairseq  # noqa: F401  (before fairseq)

import pytest
import torch
from fairseq import options
from omegaconf import OmegaConf
from runs import composed

from gpam.attention import functional, names
from gpam.errors import UsageError
from gpam_suite.benchmark import comparison, core, counting, model_kinds, models, peers, record, whole_training
from gpam_suite.benchmark.comparison import Contender, Settings, compare, relative_error
from gpam_suite.benchmark.kinds import KINDS
from gpam_suite.benchmark.models import case_of
from gpam_suite.benchmark.page import measured, pages, rows
from gpam_suite.benchmark.profiling import peak_bytes, profiled, time_shares
from gpam_suite.benchmark.run import benchmark, chosen, measure, shape_of
from gpam_suite.common.places import ROOT
from gpam_suite.records import environment
from gpam_suite.tools.catalogue import catalogue

CONFIG = OmegaConf.load(ROOT / "configs" / "benchmark.yaml")
DEFINED = OmegaConf.to_container(CONFIG, resolve=False)["defined"]
SETTINGS = Settings(threads=1, repeats=1, seed=1, device="cpu")
TINY_CORE = {"kind": "core", "batch": 3, "heads": 2, "head_dim": 8, "length": 12}
TINY_LM = {"model": "lm_laptop", "vocabulary": 20, "sentences": 2, "length": 6, "width": 16, "ffn": 16, "layers": 3}
TINY_NMT = {**TINY_LM, "model": "nmt_laptop", "sentences": 3}
SOME = ["stock", "softmax", "dagpam", "dagpam-naive", "differential", "neutreno"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Samples of one call, and nothing is profiled: that takes most of the time, and has tests of its own."""
    monkeypatch.setattr(comparison, "SHORTEST_SAMPLE", 0.0)
    monkeypatch.setattr(model_kinds, "time_shares", lambda work: {})
    for module in (core, model_kinds):
        monkeypatch.setattr(module, "profiled", lambda work, device: {})


def by_name(found):
    return {row["contender"]: row for row in found}


def right_or_refused(found):
    json.dumps(found)  # as a record keeps it
    for name, row in found.items():
        refused = row["note"] and "wrong" not in row["note"] and not row["note"].startswith("failed")
        assert row.get("seconds") or refused, (name, row["note"])


def test_a_wrong_contender_gets_no_time():
    """Nor is anything measured of it; work that returns seconds is believed. One that fails while it is timed gets none
    either, and leaves the others theirs."""
    fine, nan = torch.ones(3), torch.full((3,), math.nan)
    errors = {
        "right": lambda: relative_error([fine], [fine]),
        "wrong": lambda: relative_error([1.1 * fine], [fine]),
        "nan": lambda: relative_error([nan], [fine]),
        "broken": lambda: float("much"),
        "killed": lambda: 0.0,
    }
    left = [1.0, 2.0]  # it is killed in its third call

    def make(name):
        if name == "refused":
            raise UsageError("not here")
        run = left.pop if name == "killed" else lambda: 7.0
        return Contender(run, errors[name], lambda: {"tokens": 3})

    found = by_name(compare([*errors, "refused"], make, repeats=3, tolerance=1e-3))
    assert found["right"] == {"contender": "right", "note": "", "error": 0.0, "tokens": 3, "seconds": [7.0, 7.0, 7.0]}
    assert found["wrong"]["note"] == "wrong: relative error 1.0e-01, allowed 1e-03"
    assert found["nan"]["note"].startswith("wrong") and found["nan"]["error"] is None
    assert found["refused"]["note"] == "not here"
    assert found["broken"]["note"] == "failed: ValueError: could not convert string to float: 'much'"
    assert found["killed"]["note"] == "failed: IndexError: pop from empty list"
    assert not any("seconds" in row for name, row in found.items() if name != "right")
    assert not any("tokens" in row for name, row in found.items() if name not in ("right", "killed"))


@pytest.fixture(params=["whole", "sampled"])
def checked(request, monkeypatch):
    """Whether all rows of the output are compared, or some of them, as where the whole would not fit."""
    if request.param == "sampled":
        monkeypatch.setattr(core, "MOST_SCORES", 0)
        monkeypatch.setattr(core, "SAMPLED_ROWS", 5)
    return request.param


@pytest.mark.parametrize("mistake", ["output", "gradient"])
def test_a_wrong_attention_is_found(monkeypatch, mistake, checked):
    """A peer that forgets a branch's sign, and one whose output is right and whose gradient is not."""

    def wrong(m, q, k, v, padding, causal):
        right = peers._dagpam_naive(m, q, k, v, padding, causal)
        if mistake == "output":
            return right + 2 * m.lambda_neg * peers.sdpa(m.negative_query(q), k, v, padding, causal, 0.0)
        return right.detach() + peers.sdpa(q, k, v, padding, causal, 0.0) * 0

    monkeypatch.setitem(peers.PEERS, "dagpam-naive", peers.Peer("dagpam", wrong))
    found = by_name(measure(TINY_CORE, SETTINGS, ["softmax-sdpa", "dagpam", "dagpam-naive"]))
    assert found["dagpam-naive"]["note"].startswith("wrong") and "seconds" not in found["dagpam-naive"]
    assert found["dagpam"]["seconds"]


def test_gradients_that_are_no_numbers_are_wrong(monkeypatch):
    """Beside a result that is right."""
    right = model_kinds.gradients
    calls = itertools.count()
    monkeypatch.setattr(model_kinds, "gradients", lambda model: right(model) * (math.nan if next(calls) else 1))
    found = by_name(measure(TINY_LM | {"kind": "step"}, SETTINGS, ["stock"]))
    assert found["stock"]["note"] == "wrong: relative error nan, allowed 5e-03" and "seconds" not in found["stock"]


@pytest.mark.parametrize("change", [{"causal": True}, {"padded": True}, {"source": 7}, {"dtype": "bfloat16"}])
def test_every_contender_of_the_core_is_right(change, checked):
    found = by_name(measure(TINY_CORE | change, SETTINGS, []))
    assert set(found) >= {*names(), *peers.PEERS, "dagpam-tiled", "softmax-tiled", "dagpam-and-map"}
    right_or_refused(found)
    sums = ["softmax-sdpa", "softmax", "dagpam-and-map", "dagpam", "dagpam-naive", "differential"]
    assert all(found[name]["seconds"] for name in sums)
    too_long = checked == "sampled" and "source" not in change  # across stacks it is refused anyway
    assert (found["neutreno"]["note"] == "too long to be checked whole") == too_long


@pytest.mark.parametrize("shape", [TINY_LM, TINY_NMT], ids=["lm", "nmt"])
@pytest.mark.parametrize("contender", SOME)
def test_the_tolerance_of_steps_is_for_rounding_alone(shape, contender):
    """In float32 a ReLU's input near zero may fall on either side; in float64 all gradients agree."""
    case = case_of(shape)
    data, model = models.batch(case, 1), models.build(case, contender, 1).double()

    def gradients():
        model.zero_grad()
        models.loss_of(case, model, data).backward()
        return models.gradients(model)

    fast = gradients()
    with models.by_weights(model):
        assert relative_error([fast], [gradients()]) < 1e-12


def test_shares_of_time():
    """Of nothing but one large product nearly all is products; what sleeps is the rest; the shares add up to one."""
    left = torch.randn(1000, 1000)
    of_product = time_shares(lambda: left @ left)
    assert of_product["products"] > 0.5
    asleep = time_shares(lambda: time.sleep(0.02))
    assert asleep["rest"] > 0.9
    of_sorts = time_shares(lambda: torch.softmax(left, -1).clone().sum())
    assert min(of_sorts[kind] for kind in ("softmax", "copies", "passes")) > 0
    assert sum(of_sorts.values()) == pytest.approx(1)
    found = profiled(lambda: left @ left, "cpu")
    assert (
        found["flops"] == 2 * 1000**3 and found["peak_bytes"] >= 4 * 1000**2 and set(found["shares"]) == set(of_sorts)
    )


@pytest.mark.filterwarnings("ignore:attention .neutreno. in a stack of one layer:UserWarning")
@pytest.mark.parametrize(
    "kind, shape", [("layer", TINY_LM), ("layer", TINY_NMT), ("step", TINY_LM), ("step", TINY_NMT)]
)
def test_every_contender_of_a_model_is_right(kind, shape):
    asked = SOME if kind == "step" else []
    found = by_name(measure({"kind": kind, **shape}, SETTINGS, asked))
    assert asked or set(found) == {"stock", *names(), *(name for name in peers.PEERS if name != "softmax-fairseq")}
    right_or_refused(found)


@pytest.mark.parametrize("shape", [TINY_LM, TINY_NMT])
def test_decoding_and_its_cache(shape):
    """Step by step every contender makes the logits of a whole pass; softmax's and daGPAM's caches are stock's."""
    found = by_name(measure({"kind": "decode", **shape}, SETTINGS, SOME))
    right_or_refused(found)
    for name in ("softmax", "dagpam", "differential", "dagpam-naive"):
        assert found[name]["cache_bytes"] == found["stock"]["cache_bytes"] > 0


def test_counted_products_are_those_of_the_table():
    """Forward and backward of two branches and of one, in units of N x N x d over all heads."""
    q, q_neg, k, v = (torch.randn(1, 2, 128, 64, requires_grad=True) for _ in range(4))
    unit = 2 * 2 * 128 * 128 * 64

    def units(call):
        return counting.count_flops(lambda: call().sum().backward()) / unit

    def by_form(mechanism, form):
        return counting.FORMS[form](*counting.SUMS[mechanism])

    for backend, form in (("materialised", "materialised"), ("batched", "materialised"), ("tiled", "row-resident")):
        assert units(lambda b=backend: functional.softmax_attention(q, k, v, backend=b)) == by_form("softmax", form)
        both = units(lambda b=backend: functional.dual_softmax(q, q_neg, k, v, 1.5, 0.5, backend=b))
        assert both == by_form("dagpam", form)
    assert units(lambda: peers.sdpa(q, k, v, None, False, 0.0)) == by_form("softmax", "calls") == 7
    calls = units(lambda: functional.dual_softmax(q, q_neg, k, v, 1.5, 0.5, backend="sdpa"))
    assert calls == by_form("dagpam", "calls") == 14
    assert by_form("dagpam", "streaming") == 12
    assert counting.limit("dagpam", "cpu", 512) == counting.limit("dagpam", "cuda", 64) == pytest.approx(11 / 7)
    assert counting.limit("dagpam", "cuda", 512) == pytest.approx(12 / 7)
    assert counting.limit("softmax", "cpu", 512) == counting.limit("differential", "cpu", 512) == 1
    assert counting.limit("coda", "cpu", 512) is None


def test_peak_memory_is_that_of_live_tensors():
    def work():
        a = torch.empty(1 << 20, dtype=torch.uint8)
        b = torch.empty(2 << 20, dtype=torch.uint8)
        del a
        c = torch.empty(4 << 20, dtype=torch.uint8)
        return b.numel() + c.numel()

    assert peak_bytes(work) == (6 << 20, 6 << 20)


def test_ratios_are_medians_over_repeats():
    settings = {"device": "cpu", "threads": 1}
    found = {"case": "c", "kind": "core", "rows": [], "settings": settings, "hardware": {"processor": "p"}}
    samples = {"softmax-sdpa": [2.0, 4.0, 2.0], "dagpam": [3.0, 6.0, 2.0], "softmax": [1.0, 1.0, 1.0]}
    for name, seconds in samples.items():
        row = {"contender": name, "note": "", "seconds": seconds, "peak_bytes": 3 << 20, "limit": 11 / 7}
        found["rows"].append(row)
    line = {line["contender"]: line for line in rows(found)}["dagpam"]
    assert line["milliseconds"] == 3000
    assert (line["time_ratio_low"], line["time_ratio"], line["time_ratio_high"]) == (1.25, 1.5, 1.5)
    assert line["ratio_to_best_softmax"] == 3
    assert line["of_limit"] == pytest.approx(11 / 21)
    assert (line["peak_mib"], line["peak_ratio"]) == (3, 1)


def test_goals_are_read_from_the_samples():
    rows = [{"contender": "dagpam", "seconds": [2.0, 3.0, 9.0], "peak_bytes": 6}]
    rows += [{"contender": "softmax-sdpa", "seconds": [1.0, 2.0, 3.0], "peak_bytes": 4}]
    found = {"case": "core_causal_512", "rows": rows}
    goal = {"case": "core_causal_512", "to": "softmax-sdpa", "most": 1.05}
    assert measured(goal, found) == 2.0
    assert measured(goal | {"quantity": "peak_bytes"}, found) == 1.5
    assert measured(goal | {"to": "softmax"}, found) is measured(goal | {"case": "another"}, found) is None
    assert {goal.case for goal in CONFIG.goals} <= set(DEFINED)


def test_cases_are_chosen_by_preset_kind_and_name():
    defined = {"a": {"kind": "core"}, "b": {"kind": "step"}, "c": {"kind": "core"}}
    presets = {"default": ["b", "a"]}
    assert chosen("default", presets, defined) == ["b", "a"]
    assert chosen("all", presets, defined) == ["a", "b", "c"]
    assert chosen(["core", "a", "b"], presets, defined) == ["a", "c", "b"]
    with pytest.raises(UsageError, match=r"defined\.mine"):
        chosen("all", presets, {"mine": 3})


@pytest.mark.parametrize(
    ("case", "contenders", "message"),
    [
        ({"kind": "cor"}, [], "did you mean 'core'"),
        (TINY_CORE | {"lenght": 3}, [], "lenght"),
        (TINY_CORE | {"length": -3}, [], "negative"),
        (TINY_CORE, ["dagpm"], "did you mean 'dagpam'"),
        ({"kind": "step", "model": "lm_lapto"}, [], "did you mean 'lm_laptop'"),
    ],
)
def test_mistakes_are_named(case, contenders, message):
    with pytest.raises(UsageError, match=message):
        measure(case, SETTINGS, contenders)


def test_every_case_of_the_configuration_is_sound():
    for name, case in DEFINED.items():
        shape, kind = shape_of(case), KINDS[case["kind"]]
        if case["kind"] == "core":  # whose inputs are large
            core.Shape(**shape)
            known = {*names(), *peers.PEERS, *peers.backends("cpu"), "dagpam-and-map"}
        else:
            known = set(kind.contenders(shape, SETTINGS)[0])
        asked = case.get("contenders", [kind.baseline])
        contenders = asked if isinstance(asked, list) else CONFIG[asked.strip("${}")]
        assert kind.baseline in contenders and set(contenders) <= known, name
    assert set(CONFIG["presets"]["default"]) <= set(DEFINED)


@pytest.mark.parametrize("name", [name for name, case in DEFINED.items() if case["kind"] == "train"])
def test_a_recipe_that_is_timed_is_a_command_line_of_fairseqs(name):
    case = whole_training.Case(**shape_of(DEFINED[name]))
    cfg = whole_training.composed(f"recipe={case.recipe}")
    wanted = cfg.fairseq
    for attention in ("stock", "dagpam"):
        words = ["text", *whole_training.model_words(cfg, attention), *whole_training.flags(cfg, case)]
        read = vars(options.parse_args_and_arch(options.get_training_parser(), words))
        assert read["task"] == wanted.task._name and read["criterion"] == wanted.criterion._name
        assert read["dropout"] == wanted.model.dropout and read["decoder_layers"] == wanted.model.decoder_layers
        assert read["max_tokens"] == (case.max_tokens or wanted.dataset.max_tokens)
        assert read.get("attention", "stock") == attention


def test_a_command_that_fails_is_told_in_its_last_words(tmp_path, monkeypatch):
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho first words\necho last words >&2\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(failing))
    with pytest.raises(UsageError, match=r"gpam_fairseq train ended with 3: last words$"):
        whole_training.call(["train"])


def test_every_processor_keeps_its_records(tmp_path, monkeypatch):
    rows = [{"contender": name, "note": "", "seconds": [1.0]} for name in ("softmax-sdpa", "dagpam")]
    for processor in ("One(R) CPU", "Other", "One(R) CPU"):
        monkeypatch.setattr(environment.processor, "name", lambda name=processor: name)
        shape = {"length": 512, "heads": 8, "head_dim": 64}
        record.write(tmp_path, record.made("core_causal_512", "core", shape, SETTINGS, rows))
    assert [path.name for path in sorted((tmp_path / "records").iterdir())] == [
        "core_causal_512.one-cpu.json",
        "core_causal_512.other.json",
    ]
    made = pages(tmp_path)
    text = made[tmp_path / "README.md"]
    assert "### core_causal_512, One(R) CPU" in text and "### core_causal_512, Other" in text
    assert "| core_causal_512 | Other | dagpam: time to softmax-sdpa | 1.05 | 1.00 | yes |" in text
    (tmp_path / "steps.csv").write_text(made[tmp_path / "benchmark.csv"].replace("core_causal_512", "step_lm_laptop"))
    page = catalogue(tmp_path / "steps.csv")
    assert "; `make benchmark`; One(R) CPU, 1 thread / Other, 1 thread)" in page
    assert "| 1.00 / 1.00 | not measured |" in page


def test_flops_are_of_what_is_timed():
    row = {"contender": "stock", "note": "", "seconds": [3.0], "flops": 6e9, "steps": 30}
    (line,) = rows(record.made("decode_nmt", "decode", {}, SETTINGS, [row]))
    assert (line["milliseconds"], line["gflop"]) == (pytest.approx(100), pytest.approx(0.2))


def test_a_section_is_shown_as_soon_as_it_is_measured(tmp_path, capsys):
    """A contender that a later case has not ends the command."""
    core = "core_causal_512={kind: core, batch: 1, heads: 1, head_dim: 4, length: 8, causal: true}"
    words = ["cases=[core_causal_512,step_lm_laptop]", "repeats=1", "threads=1", f"output={tmp_path}"]
    with pytest.raises(UsageError, match="contenders: got 'softmax-tiled', wanted one of stock"):
        benchmark(composed(*words, f"defined.{core}", "contenders=[softmax-tiled]", root="benchmark"))
    assert "### core_causal_512" in capsys.readouterr().out
    with pytest.raises(UsageError, match="contenders: got 3, wanted a list"):
        measure(TINY_CORE | {"contenders": 3}, SETTINGS, [])


def test_chosen_contenders_take_the_place_of_no_record(tmp_path, capsys):
    tiny = "core_causal_512={kind: core, batch: 1, heads: 1, head_dim: 4, length: 8, causal: true}"
    words = ["cases=[core_causal_512]", "repeats=1", "threads=1", f"output={tmp_path}", f"defined.{tiny}"]
    assert benchmark(composed(*words, root="benchmark")) == tmp_path / "README.md"
    (kept,) = (tmp_path / "records").iterdir()
    before = kept.read_bytes()
    assert benchmark(composed(*words, "contenders=[dagpam,softmax-sdpa]", root="benchmark")) is None
    assert kept.read_bytes() == before and "Not kept, as contenders were chosen." in capsys.readouterr().out


def test_a_page_of_others_is_kept(tmp_path):
    mine = tmp_path / "README.md"
    mine.write_text("# Mine\n")
    with pytest.raises(UsageError, match="is not a page of benchmarks, and would be written over"):
        benchmark(composed("cases=[core_causal_512]", f"output={tmp_path}", root="benchmark"))
    assert list(tmp_path.iterdir()) == [mine]


def test_published_pages_are_what_the_records_give():
    for path, content in pages(ROOT / "results" / "benchmark").items():
        made = content.encode("utf-8") if isinstance(content, str) else content
        assert path.read_bytes() == made, f"{path} is stale: make benchmark RESULTS=results"


def test_a_broken_record_is_one_sentence(tmp_path):
    (tmp_path / record.FOLDER).mkdir()
    (tmp_path / record.FOLDER / "step.json").write_text("{")
    with pytest.raises(UsageError, match="is not as it was written"):
        record.read(tmp_path)
