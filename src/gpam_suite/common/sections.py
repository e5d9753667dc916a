"""Titled sections of lines and tables on the standard output: rich's tables on a terminal, Markdown elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gpam_suite.common.markup import inert, markdown, shown


@dataclass(frozen=True)
class Table:
    """Cells of text below their titles."""

    head: Sequence[str]
    cells: Sequence[Sequence[str]]


@dataclass
class Section:
    """A title, and lines and tables in the order in which they are read."""

    title: str
    blocks: list[str | Table] = field(default_factory=list)


def print_sections(sections: Sequence[Section]) -> None:
    """Print them, for a person where the output is a terminal, else for a file or another program."""
    console = Console(highlight=False)
    for section in sections:
        if console.is_terminal:
            _for_a_terminal(console, section)
        else:
            print(as_markdown(section))


def as_markdown(section: Section) -> str:
    """A heading, a paragraph a line, and Markdown tables."""
    blocks = [
        f"{shown(block)}\n" if isinstance(block, str) else markdown(block.head, block.cells) for block in section.blocks
    ]
    return "\n".join([f"## {inert(section.title)}\n", *blocks])


def _for_a_terminal(console: Console, section: Section) -> None:
    console.print(Text(f"\n{section.title}", style="bold"))
    for block in section.blocks:
        if isinstance(block, str):
            console.print(Text(shown(block)))  # as it is: text of a test set may hold what rich takes for markup
            continue
        table = RichTable(box=box.SIMPLE_HEAD)
        for number, title in enumerate(block.head):
            table.add_column(Text(title), justify="right" if number else "left", overflow="fold")
        for line in block.cells:
            table.add_row(*(Text(shown(cell)) for cell in line))
        console.print(table)
