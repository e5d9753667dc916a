"""The members of an experiment while they run: a table on a terminal, a line at each change elsewhere."""

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpam_suite.run.members import HEAD, QUEUED, RUNNING, Member, summary

EVERY = 1.0  # seconds between two looks
_STYLES = {"finished": "green", "failed": "red", "diverged": "red", "running": "bold"}


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
