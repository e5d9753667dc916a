"""The parts of ``make soak``: what each does, and the sentence with its figures in docs/reliability.md."""

from dataclasses import dataclass
from typing import Any

from gpam.errors import UsageError, did_you_mean

Figures = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Behind a promise whose test is a sample.

    ``work`` is ``module:function``: the function takes nothing, returns figures (JSON) and raises where the promise is
    broken; its docstring's first sentence says what it does. ``figure`` is the sentence of the page, filled with them.
    """

    name: str
    work: str
    figure: str


_KILLS = "{kills} kills ({phases}): no difference in {parameters:,} parameters and {rows:,} rows of history"
_MEMORY = "{count:,} %s: {mebibytes:,} MiB, {growth} MiB more in the end than after a tenth"
_CASES = "{cases:,} cases, none broke it: {each}"

PARTS = (
    Part("kills-lm", "soak.kills:language_model", _KILLS),
    Part("kills-nmt", "soak.kills:translation", _KILLS),
    Part(
        "same-bits",
        "soak.same_bits:soak",
        "{runs} runs with {workers} data workers: no difference in {parameters:,} parameters",
    ),
    Part(
        "watching",
        "soak.watching:cost",
        "{percent} % at a check every {every} updates: {check_milliseconds} ms a check, {update_milliseconds} ms an "
        "update (6 layers of 128 on one thread)",
    ),
    Part(
        "mixed-runs",
        "soak.mixing:soak",
        "{runs:,} runs with one to three of {options} overrides: {not_one_table} refused by the table, {own_row} rows "
        "of their own, {row_with_others} in a row with others by what may differ, {refused} refused before they start",
    ),
    Part(
        "flipped-files",
        "soak.flips:soak",
        "{flips:,} flips, {each} in each of {kinds}: {refused} refused, {unchanged} with everything read as before",
    ),
    Part("updates", "soak.memory:updates", _MEMORY % "updates"),
    Part("members", "soak.memory:members", _MEMORY % "members"),
    Part("drawn-input", "fuzzing.full:drawn", _CASES),
    Part("guided-input", "fuzzing.full:guided", _CASES),
)


def named(names: str) -> list[Part]:
    """The parts that ``names`` lists, separated by commas; all of them for an empty text.

    Raises:
        UsageError: no such part.
    """
    known = {part.name: part for part in PARTS}
    wanted = [name for name in names.split(",") if name] or list(known)
    for name in wanted:
        if name not in known:
            raise UsageError(f"PARTS: no part '{name}'{did_you_mean(name, known)} (wanted one of {', '.join(known)})")
    return [known[name] for name in wanted]
