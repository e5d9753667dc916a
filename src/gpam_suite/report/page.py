"""``<results>/README.md`` of somebody's own runs: tables, figures and commands, generated from the records."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from gpam.errors import UsageError
from gpam_suite.common.files import safe_name, write_files
from gpam_suite.common.markup import bullets, inert
from gpam_suite.common.tasks import TASKS
from gpam_suite.records.environment import PUBLISHED
from gpam_suite.report.claims import render_claims
from gpam_suite.report.figures import plots, render_figures
from gpam_suite.report.inside_section import inside, render_inside
from gpam_suite.report.perturbed_section import perturbed, render_perturbed
from gpam_suite.report.provenance import HOW_MADE, command_block, how_to_read, provenance
from gpam_suite.report.tables import render_tables, short_table
from gpam_suite.report.tuning_grid import tuning
from gpam_suite.stats.aggregate import Aggregate, read_aggregates, read_comparable

log = logging.getLogger(__name__)

_INTRODUCTION = """# Results

Generated from the records in `runs/`. Tables hold the mean and the sample standard deviation over seeds, and every
difference is to softmax under the same data, recipe and protocol. "Over seeds" asks whether another seed would tell the
same story; "on the test set" asks whether another test set would, for the models that were trained.
"""


def write_report(results: Path) -> Path:
    """Write ``results/README.md`` from all records; the figures and tables it links are written by :func:`build`.

    Raises:
        UsageError: broken records or runs that do not compare.
    """
    (path,) = write_files(_render(results, *read_comparable(results)))
    return path


def _remove_stale(results: Path, name: str, names: Iterable[str]) -> None:
    """Remove what earlier runs of an experiment gave: as ``tables/NAME.*`` and ``figures/NAME-*``."""
    longer = tuple(f"{other}-" for other in names if other.startswith(f"{name}-"))
    tables = [Path(results) / "tables" / f"{name}.{suffix}" for suffix in ("md", "csv", "tex")]
    figures = [path for path in (Path(results) / "figures").glob("*") if path.name.startswith(f"{name}-")]
    for path in tables + [path for path in figures if not path.name.startswith(longer or "/")]:
        path.unlink(missing_ok=True)


def build(results: Path, experiment: str | None = None) -> list[Path]:
    """Tables and figures of every experiment (or of one) and the page of all; returns the paths written.

    An experiment whose runs do not compare is named in a warning, and its old tables and figures are removed.

    Raises:
        UsageError: the one experiment that was asked for has no runs, or they do not compare; or the published results,
            whose pages are written by hand.
    """
    if Path(results).resolve() == PUBLISHED:
        raise UsageError(
            f"{results} is what is published, with pages of its own: python scripts/publish.py fills them."
        )
    everything, left_out = read_comparable(results)
    for name, reason in left_out.items():
        log.warning("%s is left out: %s", name, reason)
        _remove_stale(results, name, {*left_out, *(safe_name(found.experiment) for found in everything)})
    names = {safe_name(experiment)} if experiment else {safe_name(found.experiment) for found in everything}
    chosen = [found for found in everything if safe_name(found.experiment) in names]
    if experiment and not chosen:
        chosen = read_aggregates(results, experiment)  # says which experiments there are
    tables, figures = render_tables(results, chosen), render_figures(results, chosen)
    looked = render_inside(results, chosen, everything) | render_perturbed(results, chosen) | render_claims(results)
    return write_files({**tables, **figures, **looked, **_render(results, everything, left_out)})


def _render(results: Path, aggregates: list[Aggregate], left_out: Mapping[str, str]) -> dict[Path, str]:
    parts = [_INTRODUCTION]
    if aggregates:
        parts.append("".join(["The experiments:\n\n", *_contents(aggregates)]))
    else:
        parts.append("No run has been recorded yet.\n")
    parts += [f"{name} is left out. {inert(reason)}\n" for name, reason in left_out.items()]
    parts += [part for aggregate in aggregates for part in _section(aggregate)]
    parts += inside(results, aggregates)
    parts += perturbed(results, aggregates)
    parts += tuning(results)
    return {Path(results) / "README.md": "\n".join(parts)}


def _contents(aggregates: list[Aggregate]) -> list[str]:
    return [
        f"- [{found.experiment}](#{_anchor(found.experiment)}): {TASKS[found.task].title}, "
        f"{found.reference['dataset_label']}\n"
        for found in aggregates
    ]


def _anchor(title: str) -> str:
    """GitHub's anchor of a heading: lower case, spaces to hyphens, other punctuation dropped."""
    kept = "".join(character for character in title.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")


def _section(aggregate: Aggregate) -> list[str]:
    name = safe_name(aggregate.experiment)
    table = [
        f"[All columns]({quote(f'tables/{name}.md')}), [CSV]({quote(f'tables/{name}.csv')}), "
        f"[LaTeX]({quote(f'tables/{name}.tex')}).\n"
    ]
    return [
        f"## {inert(aggregate.experiment)}\n",
        f"{TASKS[aggregate.task].title}, {aggregate.reference['dataset_label']}.\n",
        short_table(aggregate),
        *table,
        *(plot.markdown(aggregate.experiment) for plot in plots(aggregate)),
        bullets([*how_to_read(aggregate), *provenance(aggregate)]),
        f"{HOW_MADE}\n",
        command_block(aggregate),
    ]
