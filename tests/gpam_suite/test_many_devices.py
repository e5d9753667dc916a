"""Several processes train one model as one process would, and start as torchrun, SLURM or this suite starts them."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gpam_fairseq  # noqa: F401

import numpy as np
import pytest
import torch
from fairseq.data.data_utils import batch_by_size
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from runs import LIMIT, TINY_LM, composed, run_here, tiny_words, until

from gpam.errors import UsageError
from gpam_suite.common.places import CONFIGS, ROOT
from gpam_suite.common.stopping import STOPPED_EXIT
from gpam_suite.config.compose import check, folder_of
from gpam_suite.config.device_batches import PRECISIONS, share, shared
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.records.folder import read_record
from gpam_suite.records.lines import read_history
from gpam_suite.run import processes
from gpam_suite.run.outcomes import CHECK_EVERY, RunFailed, rank_log
from gpam_suite.run.processes import Worker, check_place, first_ended, place_of
from gpam_suite.run.run import run

TWICE = [  # without dropout, whose masks the processes share where one process would draw others
    "model=dagpam_trainable",
    "++fairseq.optimization.update_freq=[2]",
    "++fairseq.checkpoint.save_interval_updates=1",
    "++fairseq.checkpoint.keep_interval_updates=9",
    *(f"++fairseq.model.{name}dropout=0.0" for name in ("", "attention_", "activation_")),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One text, and a run on it with one process and with two."""
    base = tmp_path_factory.mktemp("devices")
    common = tiny_words(base, *TWICE)
    found = []
    for how, overrides in ((run_here, []), (run, ["gpu=cpu2"])):
        cfg = composed(*common, *overrides)
        how(cfg)
        found.append(folder_of(cfg))
    return common, *found


def curves(folder: Path, after: int = 0) -> dict[tuple[int, str, str], float]:
    """(update, split, name) to value: the history without what a clock measured."""
    return {
        (row["update"], row["split"], name): value
        for row in read_history(folder)
        for name, value in row.items()
        if row["update"] > after and name not in ("split", "tokens_per_second", "train_seconds")
    }


def test_two_processes_train_like_one_with_twice_the_update_frequency(folders):
    _, one, two = folders
    assert {(update, split) for update, split, _ in curves(one)} == {
        (update, split) for update in (1, 2, 3, 4) for split in ("train", "valid", "gradient", "scalar")
    }
    assert curves(two) == pytest.approx(curves(one), rel=1e-5)
    alone, together = read_record(one), read_record(two)
    assert (alone["world_size"], together["world_size"]) == (1, 2)
    assert together["metrics"] == pytest.approx(alone["metrics"], rel=1e-5)
    assert together["attention_modules"] == alone["attention_modules"]


def test_two_hosts_started_by_torchrun_go_on_from_a_checkpoint(folders, tmp_path):
    """torchrun on two addresses of this machine, from the checkpoint of update 1 on: the next are those of the run that
    was not stopped."""
    common, _, two = folders
    results = tmp_path / "results"
    folder = results / two.relative_to(two.parents[3])
    (folder / "checkpoints").mkdir(parents=True)
    shutil.copy(two / "checkpoints" / "checkpoint_1_1.pt", folder / "checkpoints" / "checkpoint_last.pt")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    script = [str(ROOT / "scripts" / "train.py"), *common, "gpu=cpu2", f"paths.results={results}"]
    told = {"env": {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with processes.free_port() as port:
        torchrun += ["--master-addr=127.0.0.2", f"--master-port={port}"]
        hosts = [subprocess.Popen([*torchrun, f"--node-rank={number}", *script], **told) for number in (0, 1)]
        try:
            said = [host.communicate(timeout=LIMIT)[0].decode() for host in hosts]
        finally:
            for host in hosts:
                host.kill()
    assert [host.returncode for host in hosts] == [0, 0], "\n".join(said)
    assert rank_log(folder, 1).is_file()
    assert read_record(folder)["metrics"] == pytest.approx(read_record(two)["metrics"], rel=1e-5)
    assert curves(folder) == pytest.approx(curves(two, after=1), rel=1e-5)


@pytest.mark.parametrize("launchers", [1, 2])
def test_asked_to_stop_the_first_process_saves_and_all_end(folders, tmp_path, launchers):
    """One that starts both, or one for each, as torchrun and srun have them, who tell all of them."""
    common, *_ = folders
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), *common, "gpu=cpu2", f"paths.results={tmp_path}"]
    command += ["++fairseq.optimization.max_update=5000"]
    command += [f"++fairseq.{name}_interval_updates=5000" for name in ("checkpoint.save", "dataset.validate")]
    variables = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    with processes.free_port() as port:
        meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        places = [{}] if launchers == 1 else [meeting | {"RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
        started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables | own) for own in places]
        (history,) = until(lambda: started[0].poll() or list(tmp_path.glob("runs/*/*/*/metrics.jsonl")))
    for process in reversed(started):
        process.terminate()
    said = [process.communicate(timeout=LIMIT)[1] for process in started]
    assert [process.returncode for process in started] == [STOPPED_EXIT] * launchers, said
    assert re.search(r"saved at update \d+ of 5000", said[0])
    assert "Traceback" not in "".join(said)
    assert history.with_name("checkpoints").joinpath("checkpoint_last.pt").is_file()
    assert not history.with_name("record.json").exists()


def test_a_port_is_kept_for_the_processes_that_are_told_of_it():
    with processes.free_port() as port, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        assert torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False).port == port


def test_the_first_that_fails_gives_the_reason_and_ends_the_others(folders, tmp_path, monkeypatch):
    common, *_ = folders
    cfg = composed(*common, "gpu=cpu2", f"paths.results={tmp_path}")
    popen, started = subprocess.Popen, []

    def stand_in(command, **given):
        if "gpam_suite.run.worker" in command:
            command = ["sh", "-c", "test $RANK = 0 && exec sleep 60; echo ValueError: out of tea >&2; exit 7"]
        started.append(popen(command, **given))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", stand_in)
    with pytest.raises(RunFailed, match="failed: ValueError: out of tea"):
        run(cfg)
    assert read_record(folder_of(cfg))["reason"] == "ValueError: out of tea"
    codes = [process.returncode for process in started if process.args[0] == "sh"]
    assert sorted(codes) == [-signal.SIGKILL, 7]  # the one that sleeps was not waited for


def test_of_workers_the_one_that_ended_the_others_is_told(tmp_path):
    def worker(rank, code):
        log = rank_log(tmp_path, rank)
        log.write_text("before\nTraceback\nValueError: out of tea\n\n")
        return Worker(rank, SimpleNamespace(poll=lambda: code, returncode=code), log, len("before\n"))

    killed = "was ended by SIGKILL, which the system sends where memory has run out"
    for codes, told, words in (
        ((None, 3), 1, "ValueError: out of tea"),
        ((-9, None), 0, f"the process {killed}"),
        ((0, -9), 1, f"process 1 {killed}"),
    ):
        ended = first_ended([worker(rank, code) for rank, code in enumerate(codes)], 0)
        assert (ended.rank, ended.last_words()) == (told, words)
    assert first_ended([worker(0, 0), worker(1, None)], 0) is None
    assert first_ended([worker(0, 0), worker(1, 0)], 0).rank == 0


# --------------------------------------------------------------------------------------- the same tokens in each update


@pytest.mark.parametrize("gpu", sorted(path.stem for path in (CONFIGS / "gpu").glob("*.yaml")))
def test_every_device_and_precision_has_the_recipes_tokens_a_step(gpu):
    cfg = composed("dataset=wmt14_en_de", f"gpu={gpu}")
    assert cfg.gpu.devices == {"multi4": 4, "multi8": 8, "cpu2": 2}.get(gpu, 1)
    for cfg.gpu.precision in PRECISIONS:
        if cfg.gpu.precision != "fp32" and gpu.startswith("cpu"):
            with pytest.raises(UsageError, match=f"precision={cfg.gpu.precision} needs a GPU"):
                check(cfg)
            continue
        check(cfg)
        own = fairseq_config(cfg)
        assert (own.common.fp16, own.common.bf16) == (cfg.gpu.precision == "fp16", cfg.gpu.precision == "bf16")
        before = own.dataset.max_tokens * own.optimization.update_freq[0]
        share(own, cfg.gpu.devices)
        assert own.dataset.max_tokens * own.optimization.update_freq[0] * cfg.gpu.devices == before


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_smaller_batches_are_not_rounded_down_as_far(devices):
    """fairseq's batches of a translation's sentences: an update has a few percent more words, as less is padding."""
    own = fairseq_config(composed("experiment=nmt_paper"))
    draw = random.Random(1)
    tokens = np.array(sorted(max(2, round(draw.lognormvariate(3.0, 0.6))) for _ in range(20_000)))

    def words_of_a_batch():
        indices = np.arange(len(tokens))
        multiple = own.dataset.required_batch_size_multiple
        batches = batch_by_size(indices, lambda index: tokens[index], tokens, own.dataset.max_tokens, None, multiple)
        return tokens.sum() / len(batches)

    alone = words_of_a_batch()
    share(own, devices)
    assert 1.0 <= devices * words_of_a_batch() / alone < 1.05


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["gpu.devices=4", "++fairseq.dataset.max_tokens=768"],
            "cannot share the 6 samples of 128 tokens that fairseq.dataset.max_tokens=768 has room for evenly",
        ),
        (["gpu.devices=0"], "gpu.devices: got 0, wanted a whole number of at least 1"),
        (["gpu.precision=half"], "gpu.precision: got 'half'"),
        (["gpu.devices=3"], "set fairseq.optimization.update_freq to a multiple of 3"),
        (
            ["gpu.devices=16"],
            "leaves each device 64 tokens of fairseq.dataset.max_tokens=1024, less than one sample",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused(overrides, sentence):
    with pytest.raises(UsageError, match=sentence):
        check(composed("experiment=lm_laptop", *overrides))


ROOM = "max_tokens=768", "batch_size=4"
"""Six samples of 128 tokens have room, and four are taken."""


def test_devices_share_the_sentences_of_a_batch():
    cfg = composed("experiment=lm_laptop", "gpu.devices=2", "++fairseq.dataset.batch_size=4")
    assert shared(fairseq_config(cfg), 2)["dataset"]["batch_size"] == 2
    check(composed("experiment=lm_laptop", "gpu.devices=4", *(f"++fairseq.dataset.{most}" for most in ROOM)))
    with pytest.raises(UsageError, match="max_tokens=1024 tokens and batch_size=5 sentences evenly"):
        check(composed("experiment=lm_laptop", "gpu.devices=2", "++fairseq.dataset.batch_size=5"))


@pytest.mark.parametrize(("option", "wanted"), [("bf16", "bf16"), ("amp", "fp16"), ("memory_efficient_bf16", "bf16")])
def test_half_precision_is_asked_for_by_its_own_option(tmp_path, option, wanted):
    sentence = f"fairseq.common.{option}: got True, wanted gpu.precision={wanted}"
    with pytest.raises(UsageError, match=sentence):
        run(composed(*tiny_words(tmp_path), f"++fairseq.common.{option}=true"))


# ---------------------------------------------------------------------------------------------- who started the process


def test_torchrun_and_slurm_say_which_process_this_is():
    assert place_of({}) is None
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "7"}
    place = place_of(torchrun)
    assert (place.rank, place.world, place.local, place.address, place.port) == (3, 4, 1, "a", 7)
    assert place.variables() == torchrun
    assert place_of({**torchrun, "WORLD_SIZE": "1"}) is None
    slurm = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "40007"}
    place = place_of({**slurm, "MASTER_ADDR": "node1"})
    assert (place.rank, place.world, place.local, place.address, place.port) == (2, 8, 0, "node1", 20007)
    assert place_of({**slurm, "SLURM_STEP_NUM_TASKS": "1"}) is None  # a job of submitit's


def test_half_told_places_are_refused(monkeypatch):
    with pytest.raises(UsageError, match="got RANK=0, WORLD_SIZE=2, LOCAL_RANK=, MASTER_ADDR=, MASTER_PORT=, wanted"):
        place_of({"RANK": "0", "WORLD_SIZE": "2"})
    torchrun = {"RANK": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "7"}
    with pytest.raises(UsageError, match="RANK=x"):
        place_of(torchrun)
    with pytest.raises(UsageError, match=r"SLURM_STEP_NUM_TASKS=x, .*MASTER_PORT=, wanted whole numbers"):
        place_of({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "x", "MASTER_ADDR": "a"})
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(HydraConfig, "get", lambda: SimpleNamespace(mode=RunMode.MULTIRUN))
    with pytest.raises(UsageError, match=r"start a multirun \(-m\) as one process"):
        check_place(place_of({**torchrun, "RANK": "0"}), 2)
    monkeypatch.undo()
    with pytest.raises(UsageError, match=r"started as 2 processes, but gpu.devices is 4; set gpu.devices=2"):
        check_place(place_of({**torchrun, "RANK": "0"}), 4)


def test_a_worker_is_told_what_its_configuration_says(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(processes.subprocess, "Popen", lambda command, env, **_: seen.update(env))
    asked = ["checks.attention_every=7", "gpu.threads=3", "gpu.fast=false", "dataset.folder=x"]
    processes._start(composed(*TINY_LM, *asked), tmp_path, tmp_path, None)
    assert (seen[CHECK_EVERY], seen["OMP_NUM_THREADS"], seen["GPAM_FAST"]) == ("7", "3", "False")
