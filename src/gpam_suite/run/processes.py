"""The processes of one run: which of several this one is, the workers that it starts, and how those end.

Where nobody else has started several, this process starts a worker for each device of this machine; under torchrun or
SLURM's srun each process starts one.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from gpam.errors import UsageError
from gpam_suite.common.places import ROOT
from gpam_suite.common.stopping import die_with, ended_by
from gpam_suite.config.compose import fast
from gpam_suite.config.device_batches import devices
from gpam_suite.run.outcomes import CHECK_EVERY, rank_log

FIRST_PORT, PORTS = 20000, 20000  # of SLURM jobs, by their number
_HOST = "127.0.0.1"
_DEAF = ["sh", "-c", 'trap "" USR2; exec "$0" "$@"']
"""In a job of submitit's a worker does not hear SIGUSR2, which a job's processes are sent before it has to go. It means
the job's own process, which has itself queued again; it should not find its worker dead and record a failed run."""


# ---------------------------------------------------------------------------------------------- which of several it is


@dataclass(frozen=True)
class Place:
    """Process ``rank`` of ``world``, the ``local``-th on its host; the first is at ``address:port``."""

    rank: int
    world: int
    local: int
    address: str
    port: int

    def variables(self) -> dict[str, str]:
        """The environment variables that ``torch.distributed`` reads (``env://``)."""
        numbers = {"RANK": self.rank, "WORLD_SIZE": self.world, "LOCAL_RANK": self.local, "MASTER_PORT": self.port}
        return {name: str(number) for name, number in numbers.items()} | {"MASTER_ADDR": self.address}


def place_of(variables: Mapping[str, str] = os.environ) -> Place | None:
    """This process's place among several; None where it was started alone.

    ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``MASTER_ADDR`` and ``MASTER_PORT`` as torchrun sets them; else, inside
    ``srun`` with more than one task, SLURM's own.

    Raises:
        UsageError: of several processes, a variable is missing, or its number is none.
    """
    if "RANK" in variables and variables.get("WORLD_SIZE", "1") != "1":
        return _place(variables, "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if variables.get("SLURM_STEP_NUM_TASKS", "1") != "1" and "SLURM_PROCID" in variables:
        own = dict(variables)
        job = variables.get("SLURM_JOB_ID", "")
        own.setdefault("MASTER_PORT", str(FIRST_PORT + int(job) % PORTS) if job.isdecimal() else "")
        if "MASTER_ADDR" not in own:
            own["MASTER_ADDR"] = _first_host(variables.get("SLURM_STEP_NODELIST", ""))
        return _place(own, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "MASTER_ADDR", "MASTER_PORT")
    return None


def _place(variables: Mapping[str, str], *names: str) -> Place:
    found = [variables.get(name, "") for name in names]
    rank, world, local, address, port = found
    try:
        return Place(int(rank), int(world), int(local), address, int(port))
    except ValueError:
        values = ", ".join(map("=".join, zip(names, found, strict=True)))
        raise UsageError(
            f"{names[0]} says that this is one of several processes, but got {values}, wanted whole numbers in all but "
            f"{names[3]}; start them with torchrun or srun, or unset {names[0]}"
        ) from None


def _first_host(nodes: str) -> str:
    """The first of SLURM's ``node[1-3]``."""
    asked = ["scontrol", "show", "hostnames", nodes]
    try:
        hosts = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        hosts = []
    if not hosts:
        raise UsageError(
            f"scontrol cannot tell the hosts of this step (SLURM_STEP_NODELIST={nodes}); set MASTER_ADDR to the first "
            "one's address"
        )
    return hosts[0]


def rank() -> int:
    """This process's number among several; 0, that of the one that writes what is written once, where it is alone."""
    place = place_of()
    return 0 if place is None else place.rank


def check_place(place: Place, devices: int) -> None:
    """Refuse a number of processes that the configuration does not name, since it is part of a run's identity; and a
    multirun, whose members would meet at one port."""
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        raise UsageError(
            f"started as {place.world} processes, which train one run; start a multirun (-m) as one process: each "
            "member starts its own (gpu.devices), or becomes a job (launcher=submitit_slurm)"
        )
    if place.world != devices:
        raise UsageError(
            f"started as {place.world} processes, but gpu.devices is {devices}; set gpu.devices={place.world}, or "
            f"start {devices}"
        )


# ------------------------------------------------------------------------------------------------------------- workers


@dataclass(frozen=True)
class Worker:
    """Worker ``rank`` of a run: its process, and where in ``log`` that one's words begin."""

    rank: int
    process: subprocess.Popen
    log: Path
    start: int = 0

    def last_words(self) -> str:
        """What a process that failed said last, or which signal ended it."""
        if self.process.returncode < 0:
            who = f"process {self.rank}" if self.rank else "the process"
            return f"{who} was ended by {ended_by(-self.process.returncode)}"
        text = self.log.read_bytes()[self.start :].decode("utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else f"{self.log.name} is empty"


@contextlib.contextmanager
def workers(cfg: DictConfig, folder: Path, data: Path) -> Iterator[list[Worker]]:
    """The workers that train and evaluate the run in ``folder``; those still at work in the end are killed."""
    place, count = place_of(), devices(cfg)
    started: list[Worker] = []
    with free_port() if place is None and count > 1 else contextlib.nullcontext() as port:
        places = [Place(rank, count, rank, _HOST, port) for rank in range(count)] if port else [place]
        try:
            for one in places:
                started.append(_start(cfg, folder, data, one))
            yield started
        finally:
            for worker in started:
                worker.process.kill()
                worker.process.wait()


def _start(cfg: DictConfig, folder: Path, data: Path, place: Place | None) -> Worker:
    """Worker ``place.rank`` of the run, or the only one."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(cfg.gpu.threads),
        "GPAM_FAST": str(fast(cfg)),
        CHECK_EVERY: str(cfg.checks.attention_every),
    }
    if place_of() is None:
        variables.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # of a torchrun around this process, with another store
        if sys.platform == "linux":  # gloo would look for this host's name, which may have no address
            variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
    variables |= place.variables() if place else {}
    if cfg.fairseq.common.cpu:
        variables["CUDA_VISIBLE_DEVICES"] = ""  # fairseq's loaders would open a GPU, which takes memory of both
    command = [sys.executable, "-P", "-m", "gpam_suite.run.worker", str(folder), str(data)]
    if "SUBMITIT_EXECUTOR" in os.environ:
        command = [*_DEAF, *command]
    rank = place.rank if place else 0
    with rank_log(folder, rank).open("a", encoding="utf-8") as log:
        start = log.tell()  # before there is a process, which would move it
        dies = die_with(os.getpid())  # one call of C, which takes no lock
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, preexec_fn=dies)  # noqa: PLW1509
        return Worker(rank, process, Path(log.name), start)


def first_ended(workers: list[Worker], seconds: float) -> Worker | None:
    """The first worker to fail, or the first of all when none did; None where they are still at work after a while."""
    deadline = time.monotonic() + seconds
    while True:
        codes = [worker.process.poll() for worker in workers]
        if failed := next((worker for worker, code in zip(workers, codes, strict=True) if code), None):
            return failed  # the others only miss it
        if None not in codes:
            return workers[0]
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)


@contextlib.contextmanager
def free_port() -> Iterator[int]:
    """A port of this host that the system gives to nobody else while this holds; who is told of it can listen there."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # PyTorch's store sets it as well
        held.bind((_HOST, 0))
        yield held.getsockname()[1]
