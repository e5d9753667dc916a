"""``make evidence``: the runs of the plans in docs/, as one queue that goes on where it stopped.

A part of ``configs/evidence.yaml`` is a list of Hydra multiruns. Their members are run in the order in which they stand
there, ``jobs`` at a time, each in a process of its own (``scripts/train.py``). A member that has finished is passed
over, and so is one that diverged, as it would do so again. ``<paths.results>/queue.txt`` says at any time what is done
and what is left. The analyses come last: they need checkpoints, which are not kept in git.
"""

import itertools
import logging
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.common.formatting import duration
from gpam_suite.common.options import mapping, one_of, several, whole_number
from gpam_suite.common.places import ROOT
from gpam_suite.common.stopping import die_with, stop_now, when_stopped
from gpam_suite.config.compose import composed, folder_of
from gpam_suite.records.lines import read_history
from gpam_suite.run.command_line import USAGE_ERROR, as_hydra_takes_it
from gpam_suite.run.outcomes import RunFailed
from gpam_suite.run.progress import last_record

log = logging.getLogger(__name__)

_OTHERS = ("diverged", "failed", "running", "to do")  # statuses beside finished
_LOOK_EVERY, _TELL_EVERY = 0.2, 60.0  # seconds between two looks at the running members, and two writings of the queue


@dataclass
class Member:
    """One run of a part: its command line, its folder, how many updates it has, and how it stands."""

    part: str
    words: list[str]
    folder: Path
    updates: int
    status: str = "to do"  # or finished, or one of _OTHERS
    seconds: float | None = None  # that a finished one took to train and to evaluate

    def look(self) -> None:
        """Take the status from the run's record; a run without one is to do, and one that is being tried again."""
        record = last_record(self.folder)
        self.status = record["status"] if record else "to do"
        if self.status == "finished":
            self.seconds = record["speed"]["train_seconds"] + record["speed"]["evaluate_seconds"]

    def line(self) -> str:
        name = "/".join(self.folder.parts[-3:])
        unended = self.status in ("to do", "running")
        done = max((row["update"] for row in read_history(self.folder)), default=0) if unended else 0
        at = f", update {done:,} of {self.updates:,}" if done else ""
        return f"{self.status:<9} {self.part}: {name}{at}"


@dataclass
class Queue:
    """The members of all chosen parts, in their order, and the file that tells how they stand."""

    members: list[Member]
    jobs: int
    file: Path

    def summary(self) -> str:
        """``3 of 40 runs finished, 2 running, 35 to do; about 16 h (51 min a run, 2 at a time)``."""
        count = Counter(member.status for member in self.members)
        said = f"{count['finished']} of {len(self.members)} runs finished"
        said += "".join(f", {count[status]} {status}" for status in _OTHERS if count[status])
        left = count["to do"] + count["running"]
        known = [member.seconds for member in self.members if member.seconds is not None]
        if not left or not known:
            return said
        each = statistics.mean(known)
        return f"{said}; about {duration(left * each / self.jobs)} ({duration(each)} a run, {self.jobs} at a time)"

    def write(self) -> None:
        lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {self.summary()}", "", *(m.line() for m in self.members)]
        write_atomically(self.file, "\n".join(lines) + "\n")


def evidence(cfg: DictConfig) -> None:
    """Do what is missing of the parts that ``cfg.parts`` names (all that wait for no other when it is null).

    Raises:
        UsageError: no such part, or one whose recipe is not frozen, or ``jobs`` is no number, or a command line of the
            plan is wrong.
        RunFailed: some member ended without a result; the others were done.
        Preempted: SIGTERM came; the running members were saved, and the same call goes on.
    """
    whole_number(cfg.jobs, 1, "jobs")
    plan = unresolved(cfg)
    frozen = [name for name, part in plan.items() if "waits_for" not in part]
    chosen = frozen if cfg.parts is None else list(dict.fromkeys(several(cfg.parts, "parts")))
    if not chosen:
        raise UsageError(f"parts: got none, wanted some of {', '.join(frozen)}")
    for name in chosen:
        one_of(name, plan, "parts")
        if name not in frozen:
            raise UsageError(
                f"parts: {name} waits for what {plan[name]['waits_for']} finds: freeze that in configs/recipe or in "
                "its line of configs/evidence.yaml, and take its waits_for away"
            )
    log.info("looking at the runs of %s; %d parts wait for others", ", ".join(chosen), len(plan) - len(frozen))
    paths = OmegaConf.to_container(cfg.paths, resolve=True)
    members = [member for name in chosen for member in members_of(name, plan[name], paths)]
    queue = Queue(members, cfg.jobs, Path(paths["results"]) / "queue.txt")
    with when_stopped(lambda: stop_now("what was running is saved")):
        lost = run(queue)
    failed = False
    if any("folder" not in plan[name] for name in chosen):
        failed = _start("analyse.py", f"results={paths['results']}", "parts=[runs]", *_given(paths)).wait() != 0
    if lost:
        raise RunFailed(f"{lost} runs ended without a result; {queue.file} and their records say which")
    if failed:
        raise RunFailed("all runs have a result, but looking into them failed: the lines above say why")


def unresolved(cfg: DictConfig) -> dict[str, dict]:
    """The plan; interpolations of a run's own configuration are left to the run."""
    plan = OmegaConf.to_container(mapping(cfg.plan, "plan"), resolve=False)
    for own, part in plan.items():
        part["multiruns"] = several(mapping(part, f"plan.{own}").get("multiruns"), f"plan.{own}.multiruns")
    return plan


def overrides_of(line: str) -> list[list[str]]:
    """The command line of every member of a multirun; the last option varies fastest."""
    options = []
    for override in OverridesParser.create().parse_overrides(line.split()):
        sweep = override.is_sweep_override()
        values = override.sweep_string_iterator() if sweep else [override.get_value_string()]
        options.append([as_hydra_takes_it(f"{override.key_or_group}={value}") for value in values])
    return [list(words) for words in itertools.product(*options)]


def members_of(name: str, part: dict, paths: dict) -> Iterator[Member]:
    """The runs of a part, each with its folder below the part's results."""
    results = Path(paths["results"]) / part.get("folder", "")
    own = [as_hydra_takes_it(word) for word in (f"paths.results={results}", *_given(paths))]
    for words in itertools.chain(*map(overrides_of, part["multiruns"])):
        cfg = composed(*words, *own)
        member = Member(name, [*words, *own], folder_of(cfg), cfg.fairseq.optimization.max_update)
        member.look()
        yield member


def _given(paths: dict) -> list[str]:
    return [f"paths.{name}={value}" for name, value in paths.items() if name != "results" and value is not None]


def run(queue: Queue) -> int:
    """Run the members that have neither finished nor diverged, ``queue.jobs`` at a time; returns how many ended without
    a result.

    Raises:
        UsageError: a member was refused; no other was started after it.
        Preempted: running members have been told to save and to stop, and have ended.
    """
    waiting = [member for member in queue.members if member.status not in ("finished", "diverged")]
    for member in waiting:
        member.status = "to do"  # one that failed is tried again
    running: list[tuple[Member, subprocess.Popen]] = []
    told, lost = -_TELL_EVERY, 0
    log.info("%s; %s is kept up to date", queue.summary(), queue.file)
    try:
        while waiting or running:
            while waiting and len(running) < queue.jobs:
                member = waiting.pop(0)
                running.append((member, _start("train.py", *member.words)))
                member.status, told = "running", -_TELL_EVERY
            if time.monotonic() - told >= _TELL_EVERY:
                queue.write()
                told = time.monotonic()
            time.sleep(_LOOK_EVERY)
            for member, process in [pair for pair in running if pair[1].poll() is not None]:
                running.remove((member, process))
                member.look()
                if process.returncode == USAGE_ERROR:
                    raise UsageError(f"refused: {' '.join(member.words)}; the lines above say why")
                lost += process.returncode != 0
                log.info("%s: %s", member.line(), queue.summary())
                told = -_TELL_EVERY
    finally:
        for _, process in running:
            process.terminate()
        for member, process in running:
            process.wait()
            member.look()
        queue.write()
    return lost


def _start(script: str, *words: str) -> subprocess.Popen:
    """A script in a process that saves and stops when this one has ended, however."""
    command = [sys.executable, str(ROOT / "scripts" / script), *words]
    return subprocess.Popen(command, preexec_fn=die_with(os.getpid(), signal.SIGTERM))  # noqa: PLW1509
