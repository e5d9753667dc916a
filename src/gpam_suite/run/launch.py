"""The processes of one run on several devices of this machine.

``python -m gpam_suite.run.launch RUN_FOLDER DATA_FOLDER`` starts one worker a device. What the first says on
stderr is passed on; when one of them fails, the others are stopped, and its last line and exit code become those of
this process.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError
from gpam_suite.common.stopping import die_with, ended_by, when_stopped
from gpam_suite.config.device_batches import devices
from gpam_suite.config.run_paths import CONFIG, REFUSED_EXIT, outcome_file, rank_log
from gpam_suite.run.ranks import Place, place_of

HOST = "127.0.0.1"
_DEAF = ["sh", "-c", 'trap "" USR2; exec "$0" "$@"']


def worker_command(devices: int, folder: Path, data: Path) -> list[str]:
    """The command line of a worker, or of this module where nobody outside starts one for each of ``devices``.

    In a job of submitit's it does not hear SIGUSR2, which a job's processes are sent before it has to go. It means the
    job's own process, which has itself queued again; it should not find its worker dead and record a failed run.
    """
    alone = devices == 1 or place_of() is not None
    module = f"gpam_suite.run.{'worker' if alone else 'launch'}"
    command = [sys.executable, "-m", module, str(folder), str(data)]
    return [*_DEAF, *command] if "SUBMITIT_EXECUTOR" in os.environ else command


def main(folder: Path, data: Path) -> int:
    """Start the workers and wait for them; returns the exit code."""
    cfg = OmegaConf.load(folder / CONFIG)
    _check_machine(cfg)
    port, count = _free_port(), devices(cfg)
    workers = [_start(Place(rank, count, rank, HOST, port), folder, data) for rank in range(count)]
    with when_stopped(workers[0].terminate):  # the first saves and stops, and so do all
        return wait_for(workers, folder)


def _check_machine(cfg: DictConfig) -> None:
    import torch

    if not cfg.fairseq.common.cpu and torch.cuda.device_count() < devices(cfg):
        raise UsageError(
            f"gpu.devices={devices(cfg)}, but this machine has {torch.cuda.device_count()} GPU(s); set gpu.devices, or "
            "start one process a GPU on several machines with torchrun or srun"
        )


def _start(place: Place, folder: Path, data: Path) -> subprocess.Popen:
    variables = {**os.environ, **place.variables()}
    variables.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # of a torchrun around this process, with another store
    if sys.platform == "linux":  # gloo would look for this host's name, which may have no address
        variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
    command = [sys.executable, "-m", "gpam_suite.run.worker", str(folder), str(data)]
    if place.rank == 0:
        return subprocess.Popen(command, env=variables, preexec_fn=die_with(os.getpid()))  # noqa: PLW1509
    with rank_log(folder, place.rank).open("a", encoding="utf-8") as log:
        return subprocess.Popen(command, env=variables, stdout=log, stderr=log, preexec_fn=die_with(os.getpid()))  # noqa: PLW1509


def wait_for(workers: list[subprocess.Popen], folder: Path) -> int:
    """The exit code of the workers, by rank: 0 when all are done, else that of the first to fail; none is left."""
    try:
        while True:
            codes = [worker.poll() for worker in workers]
            for rank, code in enumerate(codes):
                if code:
                    return _failed(rank, code, folder)  # the first to end is the one that failed: others only miss it
            if None not in codes:
                return 0
            time.sleep(0.02)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _failed(rank: int, code: int, folder: Path) -> int:
    if code < 0:
        print(f"process {rank} was ended by {ended_by(-code)}", file=sys.stderr, flush=True)
        return 1
    if rank:  # the first process said it itself
        with contextlib.suppress(OSError):
            outcome_file(folder, rank).replace(outcome_file(folder))
        print(last_line(rank_log(folder, rank)), file=sys.stderr, flush=True)
    return code


def last_line(log: Path, start: int = 0) -> str:
    """What a process said last behind byte ``start``, the reason of its end."""
    text = log.read_bytes()[start:].decode("utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else f"{log.name} is empty"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
    except UsageError as refused:
        print(refused, file=sys.stderr)
        sys.exit(REFUSED_EXIT)
