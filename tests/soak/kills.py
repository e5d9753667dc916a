"""A tiny run killed with SIGKILL, again and again, and started again: it ends with the bits of one never killed.

Each start is a fork of a process that has imported what a command takes seconds to import; the run's worker is a
program of its own, as ever.
"""

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf
from runs import LIMIT, places, tiny

from gpam_suite.common.places import ROOT
from gpam_suite.common.stopping import STOPPED_EXIT
from gpam_suite.config.compose import folder_of
from gpam_suite.report.page import build
from gpam_suite.run.command_line import guarded
from gpam_suite.run.run import run
from soak.bits import compared, differences, tables_differ
from soak.killer import sitecustomize
from soak.parts import Figures

_KILLER = Path(sitecustomize.__file__).parent
_FORKS = multiprocessing.get_context("forkserver")  # not of this process, which may have threads
_FORKS.set_forkserver_preload([run.__module__, build.__module__])

LONGER = [
    "model=dagpam_trainable",
    "++fairseq.model.dropout=0.1",
    "++fairseq.model.attention_dropout=0.1",
    "++fairseq.optimization.max_update=24",
    "++fairseq.common.log_interval=3",
    "++fairseq.dataset.validate_interval_updates=4",
    "++fairseq.checkpoint.save_interval_updates=4",
    "++fairseq.dataset.max_tokens=192",
]


@dataclass(frozen=True)
class Kill:
    """``signal`` at the ``number``-th audit event whose path matches, or SIGKILL after ``seconds`` without an event."""

    phase: str
    event: str = ""
    pattern: str = ""
    number: int = 1
    seconds: float = 0.0
    signal: int = signal.SIGKILL


def on_purpose(draw: random.Random) -> list[Kill]:
    """One lifetime's kills in every phase, in the order in which a run comes to them."""
    return [
        Kill("preparing", "open", r"/data/.*\.tmp/", draw.randint(1, 12)),
        Kill("preparing", "os.rename", r"/data/stages/", draw.randint(1, 4)),
        Kill("training", "open", r"/metrics\.jsonl$", draw.randint(2, 6)),
        Kill("saving", "open", r"/checkpoint_.*\.pt\.tmp$", draw.randint(1, 3)),
        Kill("saving", "os.rename", r"/checkpoint_last\.pt$", draw.randint(1, 2)),
        Kill("training", "open", r"/metrics\.jsonl$", draw.randint(7, 12)),
        Kill("evaluating", "os.rename", r"/(scores\.jsonl|hypotheses\.txt)$"),
        Kill("writing the record", "os.rename", r"/record\.json$"),
        Kill("tabulating", "os.rename", r"/(tables|figures)/", draw.randint(1, 6)),
    ]


def language_model() -> Figures:
    """15 kills of a language model."""
    return _soak("lm", seed=0)


def translation() -> Figures:
    """15 kills of a translation model."""
    return _soak("nmt", seed=1)


def _soak(task: str, seed: int, wanted: int = 15) -> Figures:
    """``wanted`` kills: one lifetime's in every phase, then at random moments until so many have hit."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(task, Path(folder))
        whole = runs.never_killed()
        done = runs.killed(on_purpose(draw), "on-purpose")
        lifetime = 0
        while len(done) < wanted:
            moments = [Kill("a random moment", seconds=draw.uniform(0, whole)) for _ in range(3)]
            done += runs.killed(moments, f"random-{lifetime}")  # a moment behind the end kills nothing
            lifetime += 1
        phases = Counter(kill.phase for kill in done)
        listed = ", ".join(f"{name} {count}" for name, count in phases.items())
        return {"kills": len(done), "phases": listed, **compared(runs.reference)}


class Runs:
    """Runs of one configuration below ``base``, each with results and data of its own, on the same text."""

    def __init__(self, task: str, base: Path, *more: str) -> None:
        self.base, self.task, self.words = base, task, [*LONGER, *more]
        self.reference = self.folder("never-killed")

    def configuration(self, name: str) -> Path:
        cfg = tiny(self.base, *self.words, *places(self.base / name), task=self.task)
        path = self.base / f"{name}.yaml"
        path.write_text(OmegaConf.to_yaml(cfg), encoding="utf-8")
        return path

    def folder(self, name: str) -> Path:
        return folder_of(OmegaConf.load(self.configuration(name)))

    def never_killed(self) -> float:
        """Make the reference; returns its seconds."""
        clock = time.monotonic()
        assert not self.start("never-killed", None)
        return time.monotonic() - clock

    def killed(self, kills: Sequence[Kill], name: str) -> list[Kill]:
        """Start, kill, start again for each of ``kills`` that comes to pass, let it finish, and compare."""
        done = [kill for kill in kills if self.start(name, kill)]
        if self.start(name, None):
            raise AssertionError("a run that nobody kills was killed")
        results, folder = self.base / name / "results", self.folder(name)
        found = differences(self.reference, folder)
        found += tables_differ(self.reference, folder, results, self.base / f"{name}-tables")
        found += [f"left behind: {path.name}" for path in folder.rglob("*.tmp")]
        assert not found, f"after kills in {[kill.phase for kill in done]}: {found}"
        return done

    def start(self, name: str, kill: Kill | None) -> bool:
        """Run and tabulate until the end, or until the kill; returns whether it came to that."""
        with self.started(name, kill) as process:
            process.join(kill.seconds if kill and not kill.event else LIMIT)
            if process.is_alive():
                assert kill and not kill.event, f"{name} hung for {LIMIT} s in {kill}"
                _end(process)
            code = process.exitcode
        if code in (-signal.SIGKILL, STOPPED_EXIT, 128 + signal.SIGINT, 128 + signal.SIGHUP):
            return True
        assert code == 0, f"exit code {code} after {kill}: {self.log(name)[-2000:]}"
        return False

    @contextlib.contextmanager
    def started(self, name: str, kill: Kill | None) -> Iterator[multiprocessing.Process]:
        """A process that runs and tabulates, in a group of its own, which is ended when it is left."""
        given = self.configuration(name), self.base / f"{name}.log", kill, dict(os.environ), os.getpid()
        process = _FORKS.Process(target=_work, args=given)
        process.start()
        try:
            yield process
        finally:
            _end(process)

    def log(self, name: str) -> str:
        """What all starts of ``name`` printed."""
        return (self.base / f"{name}.log").read_text(encoding="utf-8", errors="replace")


def _end(process: multiprocessing.Process) -> None:
    """SIGKILL it with its group, which it makes as the first thing that it does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _end_behind(tests: int) -> None:
    """End this group when the process of the tests has gone, which may have been killed."""
    while Path(f"/proc/{tests}").exists():
        time.sleep(5)
    os.killpg(0, signal.SIGKILL)


def _work(configuration: Path, log: Path, kill: Kill | None, environment: dict[str, str], tests: int) -> None:
    """What a start does, in a process that was forked for it."""
    os.setsid()
    threading.Thread(target=_end_behind, args=(tests,), daemon=True).start()
    os.environ.update(environment)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # as a shell has them, whoever started the tests
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    with log.open("ab") as said:
        for descriptor in (1, 2):
            os.dup2(said.fileno(), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", encoding="utf-8", buffering=1) for descriptor in (1, 2))
    sys.argv = ["-c", str(configuration)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_KILLER), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    if kill and kill.event:
        words = [kill.event, kill.pattern, str(kill.number), str(int(kill.signal))]
        os.environ["SOAK_KILL"] = "\t".join(words)  # for the worker, which loads the file itself
        sitecustomize.arm(*words)

    def work() -> None:
        cfg = OmegaConf.load(configuration)
        run(cfg)
        build(Path(cfg.paths.results))

    sys.exit(guarded(work))
