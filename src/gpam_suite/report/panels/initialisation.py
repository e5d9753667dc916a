"""Every mechanism of the registry before its first update; from ``analysis/*.json`` alone."""

from pathlib import Path
from typing import Any

from gpam_suite.inside import store
from gpam_suite.inside.words import COMMAND
from gpam_suite.report.panels.models import READS, table
from gpam_suite.report.plotting import Plot


def plots(results: Path) -> list[Plot]:
    """One for each task that was looked at."""
    found = [store.read(store.path_of(results, f"initialisation-{task}")) for task in store.LOOKED_AT]
    return [_plot(initial) for initial in found if initial]


def _plot(found: dict[str, Any]) -> Plot:
    caption = (
        f"Every mechanism of the registry before its first update: {READS} Data: {found['dataset_label']}, test set. "
        f"Model: that of {found['experiment']}. Seeds: {found['seed']}. Made by `{COMMAND} parts=[initialisation]`."
    )
    return table(f"initialisation-{found['task']}", caption, list(found["models"].values()))
