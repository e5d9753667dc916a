"""The members of a multirun while they run: a table on a terminal, a line at each change elsewhere."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpam_suite.config.compose import folder_of
from gpam_suite.run.members import HEAD, QUEUED, RUNNING, Member, read_member, summary

EVERY = 1.0  # seconds between two looks
_SHOWN = "GPAM_LIVE_TABLE"  # tells the members, which may be other processes, that the table has the terminal
_STYLES = {"finished": "green", "failed": "red", "diverged": "red", "running": "bold"}
_BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
_thread: "Watch | None" = None  # not in the callback, which submitit pickles


class LiveTable(Callback):
    """Hydra's callback that opens the table when a multirun starts."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Find the members' folders as the sweeper will, and look after them from now on."""
        global _thread
        if config.hydra.sweeper._target_ != _BASIC:
            return
        with contextlib.suppress(HydraException, OmegaConfBaseException):  # the sweeper will say what is wrong
            folders = list(dict.fromkeys(map(folder_of, _members(config))))
            _thread = Watch(folders, since=time.time())
            _thread.start()


def _members(config: DictConfig) -> list[DictConfig]:
    loader = GlobalHydra.instance().config_loader()
    swept = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    parsed = OverridesParser.create(config_loader=loader).parse_overrides([*swept, *config.hydra.overrides.task])
    batches = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    found = [loader.load_sweep_config(config, overrides) for batch in batches for overrides in batch]
    return [OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"]) for cfg in found]


def close() -> None:
    """The end of a multirun, however it ended: show where every member stands, and let go of the terminal."""
    global _thread
    if _thread is not None:
        _thread.finish()
        _thread = None


def has_terminal() -> bool:
    """Whether a table of all members is on the terminal, so that a member need not say how far it is."""
    return _SHOWN in os.environ


class Watch(threading.Thread):
    """Looks at ``folders`` until it is told to finish, or until all of them have ended (``until_done``)."""

    def __init__(self, folders: Sequence[Path], since: float, console: Console | None = None) -> None:
        super().__init__(daemon=True)
        self.folders, self.since = list(folders), since
        self.console = console or Console(file=sys.stderr, highlight=False)
        self.ended = threading.Event()
        if self.console.is_terminal:
            os.environ[_SHOWN] = "1"

    def look(self) -> list[Member]:
        """Where the members stand now."""
        return [read_member(folder, self.since) for folder in self.folders]

    def run(self) -> None:
        """Show them until :meth:`finish` is called."""
        watch(self.look, self.console, lambda _: self.ended.wait(EVERY))

    def finish(self) -> None:
        """Show them a last time."""
        self.ended.set()
        self.join()
        os.environ.pop(_SHOWN, None)


def watch(look: Callable[[], list[Member]], console: Console, done: Callable[[list[Member]], bool]) -> None:
    """Show what ``look`` finds until ``done`` says that it was the last time; ``done`` waits between two looks."""
    if not console.is_terminal:
        said = None
        while True:
            members = look()
            if (line := summary(members)) != said:
                console.print(line, soft_wrap=True)
                said = line
            if done(members):
                break
        if (line := summary(look())) != said:
            console.print(line, soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            members = look()
            live.update(render(members, console.height), refresh=True)
            if done(members):
                break
        live.update(render(look()), refresh=True)


def render(members: Sequence[Member], height: int | None = None) -> Group:
    """The table above its summary; where it is higher than the terminal, those that wait or are done make room."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, title in enumerate(HEAD):
        table.add_column(Text(title), justify="right" if number > 1 else "left", overflow="fold")
    shown = list(members)
    if height is not None and len(shown) > height - 6:
        busy = [member for member in shown if member.status not in (QUEUED, "finished")]
        shown = (busy or shown)[: max(height - 6, 1)]
    for member in shown:
        style = _STYLES.get(member.status, "dim" if member.status != RUNNING else "bold")
        table.add_row(*map(Text, member.cells()), style=style)
    return Group(table, Text(summary(members)))
