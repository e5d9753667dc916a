"""The measured choice of backends: what is read, what is refused, what a resumed training keeps."""

import json

import pytest
import torch
from described_call import described

from gpam.attention import functional
from gpam.attention.backends import calibration
from gpam.attention.backends.calibration import PLAIN, Choices, kind
from gpam.attention.functional import choose_backend, softmax_attention
from gpam.errors import UsageError

CALL = {"batch": 4, "heads": 4, "target": 128, "source": 128, "branches": 2, "causal": True, "dropout": 0.1}


@pytest.fixture(autouse=True)
def forgotten(tmp_path, monkeypatch):
    """A machine that was never measured, and no choices of an earlier test."""
    monkeypatch.setattr(calibration, "path", lambda: tmp_path / "machine" / "backends.json")
    calibration._of_this_process.cache_clear()
    yield
    calibration._of_this_process.cache_clear()


@pytest.mark.parametrize(
    "change, fastest, want",
    [
        ({}, ["batched", "compiled"], "batched"),
        ({}, ["compiled", "batched"], "compiled"),
        ({"compiled": False}, ["compiled", "materialised"], "materialised"),
        ({"batch": 128}, ["batched", "materialised"], "materialised"),
        ({"batch": 4000}, ["batched", "materialised", "compiled"], "compiled"),
        ({"batch": 4000, "compiled": False}, ["batched", "materialised"], "tiled"),
        ({"branches": 1, "dropout": 0.0}, ["sdpa", "batched"], "sdpa"),
        ({"branches": 1, "dropout": 0.0, "padded": True}, ["sdpa", "batched"], "batched"),
        ({"dtype": torch.float64, "compiled": False}, ["batched"], "materialised"),
        ({"target": 1, "causal": False}, ["batched"], "packed"),
        ({"device": "cuda"}, ["batched"], "sdpa"),
    ],
)
def test_the_first_that_may_is_taken(change, fastest, want):
    call = CALL | change
    compiled = call.pop("compiled", True)
    problem = described(**call, head_dim=32, value_dim=32)
    assert choose_backend(problem, flash=False, compiled=compiled, fastest=fastest) == want


def test_every_kind_of_call_is_measured(monkeypatch):
    monkeypatch.setattr(calibration, "TOKENS", 512)
    monkeypatch.setattr(calibration, "REPEATS", 1)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    found = calibration.measure()
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads
    asked = {
        kind(branches=branches, target=target, source=source, causal=causal, dropout=dropout)
        for branches in (1, 2, 3)
        for target in (1, 64, 65, 5000)
        for source in (1, 64, 256, 257)
        for causal in (False, True)
        for dropout in (0.0, 0.3)
    }
    assert asked == set(found.fastest)
    wanted = {"materialised", "compiled" if found.library else "batched"}
    for name, order in found.fastest.items():
        own = wanted | ({"sdpa"} if name.startswith("one") and "dropout" not in name else set())
        assert set(order) == own and len(order) == len(own)


def test_the_quickest_comes_first(monkeypatch):
    took, clock = {"batched": 3, "compiled": 2, "materialised": 1, "sdpa": 4}, [0]
    stock = functional.sum_of_softmaxes

    def timed(*given, backend, **options):
        clock[0] += took[backend]
        return stock(*given, backend="reference", **options)

    monkeypatch.setattr(calibration.time, "thread_time", lambda: clock[0])
    monkeypatch.setattr(functional, "sum_of_softmaxes", timed)
    monkeypatch.setattr(calibration, "TOKENS", 512)
    monkeypatch.setattr(calibration, "REPEATS", 1)
    assert all(order == sorted(order, key=took.get) for order in calibration.measure().fastest.values())


def test_what_was_written_is_used(tmp_path, monkeypatch):
    there = calibration.of_machine().library
    one = kind(branches=1, target=9, source=9, causal=False, dropout=0.0)
    monkeypatch.setattr(calibration, "measure", lambda: Choices(there, {one: ["materialised"]}))
    assert calibration.main().endswith(str(tmp_path / "machine" / "backends.json"))
    seen, q = {}, torch.zeros(1, 1, 9, 4)
    monkeypatch.setattr(functional, "choose_backend", lambda _, **known: seen.update(known) or "reference")
    softmax_attention(q, q, q)
    assert seen["fastest"] == ["materialised"] and seen["compiled"] == (there is not None)
    assert "measured" in str(calibration.current())
    calibration.use(PLAIN)
    softmax_attention(q, q, q)
    assert seen["fastest"] == () and seen["compiled"] is False
    assert str(calibration.current()) == "PyTorch's operators alone, by thresholds"


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "no json",
        "[]",
        "{}",
        '{"library": 3, "fastest": {}}',
        '{"library": null, "fastest": []}',
        '{"library": null, "fastest": {"one 32 full": "batched"}}',
        '{"library": null, "fastest": {"one 32 full": ["quickest"]}}',
        '{"library": null, "fastest": {"one 32 full": [["batched"]]}}',
        '{"library": "of another source", "fastest": {}}',
        b"\xff\xfe\x00",
    ],
)
def test_a_file_that_is_none_is_as_if_it_were_missing(content, tmp_path):
    path = calibration.path()
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert calibration.of_machine().fastest == {}
    assert str(calibration.current()).endswith("by thresholds")


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "machine").write_text("a file", encoding="utf-8")
    monkeypatch.setattr(calibration, "measure", lambda: PLAIN)
    assert "cannot be written" in calibration.main()


def test_a_resumed_training_keeps_its_choices(tmp_path, monkeypatch):
    """Whatever the machine says by then: thus it ends with the same bits."""
    path = tmp_path / calibration.FILE
    first = calibration.keep(tmp_path, resumed=False)
    written = json.loads(path.read_text(encoding="utf-8"))
    assert len(written.pop("sha256")) == 64 and written == {"library": first.library, "fastest": {}}
    later = Choices(first.library, {"two 128 causal dropout": ["materialised"]})
    later.write(calibration.path())
    calibration._of_this_process.cache_clear()
    assert calibration.keep(tmp_path, resumed=True) == first
    assert calibration.current() == first
    assert calibration.keep(tmp_path, resumed=False) == later
    assert calibration.keep(tmp_path, resumed=True) == later
    whole = path.read_text(encoding="utf-8")
    for damaged in ("cut", whole.replace("materialised", "batched")):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(UsageError, match=r"backends\.json is damaged: restore it, or remove it to go on"):
            calibration.keep(tmp_path, resumed=True)
    path.unlink()
    calibration.keep(tmp_path, resumed=False, write=False)
    assert not path.exists()


def test_a_resumed_training_goes_on_without_its_library(tmp_path):
    path = tmp_path / calibration.FILE
    order = {"two 128 causal dropout": ["compiled", "batched"]}
    Choices("attention-of-elsewhere.so", order).write(path)
    assert calibration.keep(tmp_path, resumed=True) == Choices(None, order)
