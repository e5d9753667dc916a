"""How a figure looks and how it becomes bytes; what is drawn, others decide.

Colours are those of Okabe & Ito (2008, told apart by colour-blind readers too); line style and marker differ as well,
so that a print in grey can be read. The same data give the same SVG bytes on one version of matplotlib.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any
from urllib.parse import quote

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text

from gpam_suite.common.files import safe_name
from gpam_suite.common.markup import inert

COLOURS = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
GREY = "#bbbbbb"
BASELINE_DASH = (0, (4, 3))
_DASHES: list[Any] = ["-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 2))]
_MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
_STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same outlines everywhere
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "svg.hashsalt": "gpam_suite",
    "svg.fonttype": "path",
    "savefig.dpi": 200,
}
_SYMBOLS = {"lambda_pos": r"$\lambda_+$", "lambda_neg": r"$\lambda_-$"}
_WIDTH = 6.3  # inches: the text width of a page


@dataclass(frozen=True)
class Plot:
    """A figure that can be drawn: its ``name``, its ``caption``, its ``height`` in inches, and how."""

    name: str
    caption: str
    height: float
    draw: Callable[[Figure], None]

    def path(self, experiment: str) -> Path:
        """``figures/<experiment>-<name>.svg``, below the results."""
        return Path("figures") / f"{safe_name(experiment)}-{self.name}.svg"

    def markdown(self, path: Path, title: str) -> str:
        """The figure with its caption, for a page that finds it at ``path``."""
        return f"![{inert(title)}]({quote(path.as_posix())})\n\n*{inert(self.caption)}*\n"


def render(plot: Plot) -> bytes:
    """The figure as SVG, whatever the user's own matplotlib settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=(_WIDTH, plot.height), layout="constrained")
        plot.draw(figure)
        for text in figure.findobj(Text):
            if not _can_be_read(text.get_text()):
                text.set_parse_math(False)
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})  # they change from day to day
    return re.sub(rb" *\n *", b"\n", _named_by_place(file.getvalue()))  # a tenth of the file is indentation


def _named_by_place(svg: bytes) -> bytes:
    """With the clip paths numbered: matplotlib names them after their last bits, in which layouts may differ."""
    for number, name in enumerate(re.findall(rb'<clipPath id="(\w+)"', svg)):
        svg = svg.replace(name, b"clip%d" % number)
    return svg


def _can_be_read(text: str) -> bool:
    """Whether matplotlib can read the formulas in ``text``: the label of a record may hold ``$`` and mean it."""
    try:
        return "$" not in text or all(MathTextParser("path").parse(line) is not None for line in text.split("\n"))
    except ValueError:
        return False


def look(index: int) -> dict[str, Any]:
    """Colour, line style and marker of the ``index``-th thing in a figure."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": _DASHES[index % len(_DASHES)],
        "marker": _MARKERS[(index + index // len(COLOURS)) % len(_MARKERS)],  # a colour comes back with another one
    }


def symbol(option: str) -> str:
    """The paper's symbol of an option where it has one."""
    return _SYMBOLS.get(option, option)


def some_panels(figure: Figure, count: int, down: int, across: int) -> list[Axes]:
    """The first ``count`` of a grid of ``down`` times ``across`` panels; the places of the others stay empty."""
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_visible(False)
    return grid[:count]


def band(axes: Axes, x: Sequence[float], seeds: Sequence[Sequence[float]], style: dict[str, Any], label: str) -> None:
    """Mean (line) and range (band) over seeds."""
    values = np.array(seeds, dtype=float)
    axes.fill_between(x, values.min(0), values.max(0), color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(x, values.mean(0), label=label, **style)


def logarithmic(axis: Any) -> None:
    """Make an axis that holds its data already logarithmic, with plain round numbers as ticks."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    low, high = axis.get_view_interval()
    wide = high > 8 * low
    axis.set_major_locator(
        ticker.LogLocator(subs=(1.0, 2.0, 5.0)) if wide else ticker.MaxNLocator(5, steps=[1, 2, 5, 10])
    )
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def legend_below(figure: Figure) -> None:
    """One legend below all panels, each label once."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    longest = max((len(re.sub(r"\$.*?\$", "xx", label)) for label in found), default=0)  # a symbol takes two letters
    across = next((columns for columns, most in ((4, 15), (3, 23), (2, 41)) if longest <= most), 1)
    figure.legend(found.values(), [fill(label, 90) for label in found], loc="outside lower center", ncols=across)
