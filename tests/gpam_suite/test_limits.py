"""A full disk, a read-only folder, vanished data, too little memory: one sentence, exit code 2, nothing half-made."""

import os
import shutil
import subprocess
import sys

import pytest
import safetensors
import torch
from data_helpers import PLAIN, monolingual, preparations
from runs import run_here, tiny, tiny_words

from gpam_suite.common.failures import to_mend
from gpam_suite.common.places import ROOT
from gpam_suite.data import prepare
from gpam_suite.run import run as run_module
from gpam_suite.run.command_line import guarded
from gpam_suite.run.run import run


@pytest.fixture
def disk(tmp_path):
    """``disk(size)`` is a folder on a disk of its own; ``disk(None)`` makes it read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size):
        how = ["-o", "remount,ro"] if size is None else ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
        done = subprocess.run(["mount", *how, folder], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
        return folder

    yield mount
    while os.path.ismount(folder):
        subprocess.run(["umount", folder], check=True)


def said(work, capsys):
    """The one sentence that ``work`` ends with, after exit code 2."""
    capsys.readouterr()
    assert guarded(work) == 2
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    return printed.splitlines()[-1]


@pytest.mark.parametrize("size", ["4k", "24k", "48k"])
def test_a_full_disk_while_data_are_prepared(size, disk, tmp_path, capsys):
    dataset = monolingual(tmp_path / "raw", train_txt=[f"a line of some words, number {n}" for n in range(900)])
    data = disk(size) / "data"
    sentence = said(lambda: prepare(dataset, PLAIN, {"data": data, "workers": 1}), capsys)
    assert "full" in sentence
    assert preparations(data) == []
    assert not list(data.rglob("*.tmp"))


@pytest.mark.parametrize("name", ["results", "data"])
def test_a_read_only_folder(name, disk, tmp_path, capsys):
    folder = disk("1m")
    disk(None)
    cfg = tiny(tmp_path, f"paths.{name}={folder}/{name}")
    assert f"{folder}" in (sentence := said(lambda: run(cfg), capsys))
    assert "Read-only" in sentence
    assert not list(tmp_path.rglob("record.json"))


def test_a_full_disk_while_training(disk, tmp_path, capsys):
    """Room for one checkpoint and a half: no half checkpoint is left under a name that one is read by."""
    folder = disk("180k")
    cfg = tiny(tmp_path, f"paths.results={folder}/results")
    assert "full" in said(lambda: run_here(cfg), capsys)
    assert not list(folder.rglob("record.json"))
    left = list(folder.rglob("*.pt"))
    assert left and all("model" in torch.load(path, weights_only=True) for path in left)


def test_data_that_vanish_before_training_reads_them(tmp_path, capsys, monkeypatch):
    stock = run_module.workers

    def vanish(*given):
        shutil.rmtree(tmp_path / "data")
        return stock(*given)

    monkeypatch.setattr(run_module, "workers", vanish)
    assert "is gone while it was needed" in said(lambda: run_here(tiny(tmp_path)), capsys)
    assert not list(tmp_path.rglob("record.json"))


LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_limit_of_memory(tmp_path):
    big = "fairseq.model.decoder_ffn_embed_dim=200000000"  # one matrix that is too large, behind small ones
    script = ROOT / "scripts" / "train.py"
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, script, *tiny_words(tmp_path, big)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # each thread takes room of its own
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "not enough memory" in ended.stderr.splitlines()[-1]
    assert not list(tmp_path.rglob("record.json"))


@pytest.mark.parametrize("limit", [OSError(28, "No space left"), OSError(27, "File too large"), MemoryError()])
def test_what_torch_makes_of_a_limit_is_still_known(limit):
    try:
        try:
            raise limit
        finally:
            raise RuntimeError("unexpected pos 64 vs 0")
    except RuntimeError as error:
        assert to_mend(error)
    assert to_mend(RuntimeError("another mistake")) is None


def test_a_library_in_rust_has_a_full_disk_of_its_own():
    full = safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert to_mend(full).startswith("the disk is full, or a quota or limit reached (")
    assert to_mend(safetensors.SafetensorError("Error while deserializing header: HeaderTooSmall")) is None


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "results").touch()
    for place in ("results", "results/searches"):
        with pytest.raises(OSError, match="results") as caught:
            (tmp_path / place).mkdir()
        assert to_mend(caught.value).startswith(f"no access to {tmp_path}/{place}: ")


def test_a_file_that_is_gone_is_not_a_program_that_is_missing(tmp_path):
    def sentence(work):
        try:
            work()
        except Exception as error:
            return to_mend(error)

    def another_mistake():
        try:
            (tmp_path / "gone").read_bytes()
        except OSError:
            raise KeyError("a name") from None

    assert "gone" in sentence((tmp_path / "gone").read_bytes)
    assert sentence(lambda: subprocess.run(["no_such_program"], check=False)) is None
    assert sentence(another_mistake) is None
