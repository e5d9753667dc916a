"""Which of several processes this one is, as torchrun, SLURM's srun or :mod:`gpam_suite.run.launch` say it."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from gpam.errors import UsageError

FIRST_PORT, PORTS = 20000, 20000  # of SLURM jobs, by their number


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
        UsageError: some variables are set and others missing, or a number is none.
    """
    if "RANK" in variables and variables.get("WORLD_SIZE", "1") != "1":
        return _place(variables, "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if int(variables.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in variables:
        own = dict(variables)
        own.setdefault("MASTER_PORT", str(FIRST_PORT + int(variables["SLURM_JOB_ID"]) % PORTS))
        if "MASTER_ADDR" not in own:
            own["MASTER_ADDR"] = _first_host(variables["SLURM_STEP_NODELIST"])
        return _place(own, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "MASTER_ADDR", "MASTER_PORT")
    return None


def _place(variables: Mapping[str, str], *names: str) -> Place:
    missing = [name for name in names if name not in variables]
    if missing:
        raise UsageError(
            f"{names[0]} says that this is one of several processes, but {', '.join(missing)} is not set; start them "
            "with torchrun or srun, or unset it"
        )
    try:
        rank, world, local, port = (int(variables[names[index]]) for index in (0, 1, 2, 4))
    except ValueError:
        values = ", ".join(f"{name}={variables[name]}" for name in names)
        raise UsageError(f"got {values}, wanted whole numbers in all but {names[3]}") from None
    return Place(rank, world, local, variables[names[3]], port)


def _first_host(nodes: str) -> str:
    """The first of SLURM's ``node[1-3]``."""
    listed = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout.split():
        raise UsageError(f"scontrol cannot tell the hosts of {nodes}; set MASTER_ADDR to the first one's address")
    return listed.stdout.split()[0]


def rank() -> int:
    """This process's number among several; 0 where it is alone."""
    place = place_of()
    return 0 if place is None else place.rank


def is_first() -> bool:
    """Whether this process writes what is written once: it is alone, or the first of several."""
    return rank() == 0


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
