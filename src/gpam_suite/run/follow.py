"""What the processes of one run do that are not its first: train along, and write nothing."""

import logging
import os
import subprocess
import time
from pathlib import Path

from omegaconf import DictConfig

from gpam_suite.common.stopping import die_with
from gpam_suite.config.run_paths import CHECK_EVERY, CONFIG, rank_log
from gpam_suite.data import prepare
from gpam_suite.records.environment import for_worker
from gpam_suite.records.folder import is_finished
from gpam_suite.run.command_line import RunFailed
from gpam_suite.run.launch import last_line, worker_command
from gpam_suite.run.ranks import Place

log = logging.getLogger(__name__)


def follow(cfg: DictConfig, folder: Path, place: Place) -> None:
    """Wait until the first process has prepared the data and written ``folder``'s configuration, then train along.

    Raises:
        RunFailed: this process's training failed.
    """
    if is_finished(folder):
        return
    while not (folder / CONFIG).is_file():  # torchrun and srun stop the others when the first one fails
        time.sleep(0.2)
    prepared = prepare(cfg.dataset, cfg.preprocessing, cfg.paths)
    variables = for_worker(cfg.gpu) | place.variables() | {CHECK_EVERY: str(cfg.checks.attention_every)}
    command = worker_command(place.world, folder, prepared.folder)
    path = rank_log(folder, place.rank)
    with path.open("a", encoding="utf-8") as file:
        ended = subprocess.run(
            command, env=variables, stdout=file, stderr=file, check=False, preexec_fn=die_with(os.getpid())
        )
    code = ended.returncode
    if code:
        raise RunFailed(f"process {place.rank} of {place.world}: {last_line(path)} (log: {path})")
