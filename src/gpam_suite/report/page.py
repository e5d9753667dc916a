"""``<results>/README.md`` of somebody's own runs: tables, figures and commands, generated from the records."""

import logging
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from gpam.errors import UsageError
from gpam_suite.common.files import safe_name, write_files
from gpam_suite.common.markup import inert
from gpam_suite.common.tasks import TASKS
from gpam_suite.records.environment import PUBLISHED
from gpam_suite.report import figures, perturbed_section
from gpam_suite.report.claims import render_claims
from gpam_suite.report.panels import runs, theory
from gpam_suite.report.plotting import Plot, render
from gpam_suite.report.provenance import experiment_notes
from gpam_suite.report.tables import render_tables, short_table
from gpam_suite.report.tuning_grid import tuning
from gpam_suite.stats.aggregate import Aggregate, read_aggregates, read_comparable
from gpam_suite.stats.perturbed import Found, find

log = logging.getLogger(__name__)
GENERAL = "analysis"
"""What figures of no single experiment are named after."""

_INTRODUCTION = """# Results

Generated from the records in `runs/`. Tables hold the mean and the sample standard deviation over seeds, and every
difference is to softmax under the same data, recipe and protocol. "Over seeds" asks whether another seed would tell the
same story; "on the test set" asks whether another test set would, for the models that were trained.
"""


def build(results: Path, experiment: str | None = None) -> list[Path]:
    """Tables and figures of every experiment (or of one) and the page of all; returns the paths written.

    An experiment whose runs do not compare is named in a warning, and its old tables and figures are removed.

    Raises:
        UsageError: the one experiment that was asked for has no runs, or they do not compare; or the published results,
            whose pages are written by hand.
    """
    results = Path(results)
    if results.resolve() == PUBLISHED:
        raise UsageError(
            f"{results} is what is published, with pages of its own: python scripts/publish.py fills them."
        )
    everything, left_out = read_comparable(results)
    names = {safe_name(found.experiment): found for found in everything}
    for name, reason in left_out.items():
        log.warning("%s is left out: %s", name, reason)
        _remove_stale(results, name, {*left_out, *names})
    chosen = [found for name, found in names.items() if not experiment or name == safe_name(experiment)]
    if experiment and not chosen:
        chosen = read_aggregates(results, experiment)  # says which experiments there are
    noise = {found: find(results, found) for found in everything}
    drawn = {found: _figures(results, found, noise[found]) for found in everything}
    general = theory.plots(results)
    files: dict[Path, str | bytes] = {**render_tables(results, chosen), **render_claims(results, everything)}
    for found in chosen:
        files |= _rendered(results, drawn[found], found.experiment)
        if own := noise[found]:
            files[results / perturbed_section.table_path(own)] = perturbed_section.whole_table(own)
    files |= _rendered(results, general, GENERAL)
    contents = "".join(["The experiments:\n\n", *map(_entry, everything)])
    parts = [_INTRODUCTION, contents if everything else "No run has been recorded yet.\n"]
    parts += [f"{name} is left out. {inert(reason)}\n" for name, reason in left_out.items()]
    parts += [part for found in everything for part in _section(found, drawn[found])]
    parts += [part for found in filter(None, noise.values()) for part in perturbed_section.section(found)]
    if general:
        parts += ["## The formula alone\n", *_shown(general, GENERAL)]
    files[results / "README.md"] = "\n".join(parts + tuning(results))
    return write_files(files)


def _remove_stale(results: Path, name: str, names: Iterable[str]) -> None:
    """Remove what earlier runs of an experiment gave: as ``tables/NAME.*`` and ``figures/NAME-*``."""
    longer = tuple(f"{other}-" for other in names if other.startswith(f"{name}-"))
    tables = [results / "tables" / f"{name}.{suffix}" for suffix in ("md", "csv", "tex")]
    drawn = [path for path in (results / "figures").glob("*") if path.name.startswith(f"{name}-")]
    for path in tables + [path for path in drawn if not path.name.startswith(longer or "/")]:
        path.unlink(missing_ok=True)


def _figures(results: Path, aggregate: Aggregate, noise: Found | None) -> list[Plot]:
    found = [*figures.plots(aggregate), *runs.plots(results, aggregate)]
    return [*found, perturbed_section.plot(noise)] if noise else found


def _rendered(results: Path, plots: Iterable[Plot], experiment: str) -> dict[Path, bytes]:
    return {results / plot.path(experiment): render(plot) for plot in plots}


def _shown(plots: Iterable[Plot], experiment: str) -> list[str]:
    return [plot.markdown(plot.path(experiment), f"{plot.name} of {experiment}") for plot in plots]


def _entry(found: Aggregate) -> str:
    """A line of the contents; GitHub's anchor of a heading is in lower case, with hyphens for spaces and no other
    punctuation."""
    kept = "".join(sign for sign in found.experiment.lower() if sign.isalnum() or sign in " -_")
    title = f"{TASKS[found.task].title}, {inert(found.reference['dataset_label'])}"
    return f"- [{inert(found.experiment)}](#{kept.replace(' ', '-')}): {title}\n"


def _section(aggregate: Aggregate, drawn: Iterable[Plot]) -> list[str]:
    name = safe_name(aggregate.experiment)
    kinds = {"All columns": "md", "CSV": "csv", "LaTeX": "tex"}
    links = ", ".join(f"[{title}]({quote(f'tables/{name}.{suffix}')})" for title, suffix in kinds.items())
    return [
        f"## {inert(aggregate.experiment)}\n",
        f"{TASKS[aggregate.task].title}, {inert(aggregate.reference['dataset_label'])}.\n",
        short_table(aggregate),
        f"{links}.\n",
        *_shown(drawn, aggregate.experiment),
        *experiment_notes(aggregate),
    ]
