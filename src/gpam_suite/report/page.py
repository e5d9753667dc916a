"""``<results>/README.md`` of somebody's own runs: tables, figures and commands, generated from the records."""

import logging
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from gpam.errors import UsageError
from gpam_suite.common.files import refuse_other_page, safe_name, write_atomically, write_files
from gpam_suite.common.lock import locked
from gpam_suite.common.markup import inert
from gpam_suite.common.places import PUBLISHED
from gpam_suite.common.tasks import TASKS
from gpam_suite.config.identity import CONFIG
from gpam_suite.records import archives, store
from gpam_suite.records.folder import RECORD
from gpam_suite.records.settings import table_settings
from gpam_suite.report import figures, perturbed_section
from gpam_suite.report.claims import render_claims
from gpam_suite.report.panels import theory
from gpam_suite.report.panels.runs import inside_runs
from gpam_suite.report.plotting import Plot, render
from gpam_suite.report.provenance import experiment_notes
from gpam_suite.report.tables import render_tables, short_table
from gpam_suite.report.tuning_grid import tuning
from gpam_suite.stats.aggregate import read_comparable
from gpam_suite.stats.claim import read_claims
from gpam_suite.stats.finding import findings, held_back
from gpam_suite.stats.perturbed import find
from gpam_suite.stats.rows import Aggregate
from gpam_suite.stats.tuning import FOLDER as TUNING

log = logging.getLogger(__name__)
GENERAL = "analysis"
"""What figures of no single experiment are named after."""

_WRITTEN = ".written"
"""What :func:`build` wrote last, a path a line: of that it removes what it writes no more."""
_MADE = ("tables/*.md", "tables/*.csv", "figures/*.svg", "comparisons/*.json")
"""Where it removes."""

_PARTS = ("runs", store.FOLDER, TUNING)
"""What makes a folder one of results."""

_INTRODUCTION = """# Results

Generated from the records in `runs/`. Tables hold the mean and the sample standard deviation over seeds, and every
difference is to softmax under the same data, recipe and protocol. "Over seeds" asks whether another seed would tell the
same story; "on the test set" asks whether another test set would, for the models that were trained.
"""
_OPENING = _INTRODUCTION.partition("records")[0]
"""What every page of ours has begun with."""


def refuse_other_folder(results: Path) -> None:
    """Raise UsageError where ``results`` is no folder of results."""
    if not any((results / part).is_dir() or archives.archive_of(results / part).is_file() for part in _PARTS):
        raise UsageError(f"got {results}, wanted a results folder: one of {', '.join(_PARTS)} is in it")


def refuse_other_pages(results: Path) -> None:
    """Raise UsageError where somebody keeps another page: nothing is written over."""
    if results.resolve() == PUBLISHED:
        raise UsageError(
            f"{results} is what is published, with pages of its own: python scripts/publish.py fills them."
        )
    refuse_other_page(results / "README.md", _OPENING, "results")


def build(results: Path) -> list[Path]:
    """Tables and figures of every experiment, and the page of all; returns the paths written.

    An experiment whose runs do not compare is named in a warning. What earlier calls wrote and this one does not, of
    such an experiment or of one that is gone, is removed.

    Raises:
        UsageError: no results folder, or one whose page is not ours: the published results, or any other.
    """
    refuse_other_folder(results)
    refuse_other_pages(results)
    with locked(results):  # another call would remove what it does not know to be new
        return _built(results)


def _built(results: Path) -> list[Path]:
    read, left_out = read_comparable(results)
    for name, reason in left_out.items():
        log.warning("%s is left out: %s", name, reason)
    others = {one.experiment: reason for one in read if (reason := unlike_its_plan(one))}
    for reason in others.values():
        log.warning(reason)
    said = findings(results, [one for one in read if one.experiment not in others])
    found = [one if one.experiment in others else held_back(one, said) for one in read]
    files: dict[Path, str | bytes] = {**render_tables(results, found), **render_claims(results, read, said)}
    parts = [_INTRODUCTION, *([] if found or left_out else ["No run has been recorded yet.\n"])]
    parts += [f"{name} is left out. {inert(reason)}\n" for name, reason in left_out.items()]

    def readable(what: str, made: Callable[[], list[str]]) -> list[str]:
        """Of what no table reads: a damaged file leaves it out, and all else stands."""
        try:
            return made()
        except UsageError as error:
            log.warning("%s: left out. %s", what, error)
            return [f"{inert(what)}: left out. {inert(str(error))}\n"]

    def show(plots: Iterable[Plot], experiment: str) -> list[str]:
        drawn = {plot.path(experiment): plot for plot in plots}
        files.update({results / path: render(plot) for path, plot in drawn.items()})
        return [plot.markdown(path, f"{plot.name} of {experiment}") for path, plot in drawn.items()]

    def figures_of(one: Aggregate) -> list[str]:
        return show([*figures.plots(one), *filter(None, [inside_runs(results, one)])], one.experiment)

    def perturbed_of(one: Aggregate) -> list[str]:
        if (noise := find(results, one)) is None:
            return []
        shown = show([perturbed_section.plot(noise)], one.experiment)
        return [f"## Perturbed input: {inert(one.experiment)}\n", *shown, perturbed_section.table(noise)]

    def formula() -> list[str]:
        general = theory.plots(results)
        return ["## The formula alone\n", *show(general, GENERAL)] if general else []

    for one in found:
        reason = others.get(one.experiment)
        parts += [*_head(one), *_unended(results, one), *([f"{inert(reason)}.\n"] if reason else [])]
        parts += readable(f"Figures of {one.experiment}", partial(figures_of, one))
        parts += experiment_notes(one)
    for one in found:
        parts += readable(f"Perturbed input of {one.experiment}", partial(perturbed_of, one))
    parts += readable("Figures of the formula alone", formula)
    parts += readable("Tuning", partial(tuning, results))
    files[results / "README.md"] = "\n".join(parts)
    before = results / _WRITTEN
    known = set(before.read_text(encoding="utf-8").splitlines()) if before.is_file() else set()
    written = write_files(files)
    for path in {path for kind in _MADE for path in results.glob(kind)} - files.keys():
        if path.relative_to(results).as_posix() in known:
            path.unlink(missing_ok=True)
    write_atomically(before, "".join(f"{path.relative_to(results).as_posix()}\n" for path in sorted(files)))
    return written


@cache
def _published_configurations() -> dict[str, dict[str, Any]]:
    """One an experiment."""
    return yaml.safe_load((PUBLISHED / "configurations.yaml").read_text(encoding="utf-8"))


def unlike_its_plan(found: Aggregate) -> str | None:
    """Why runs that have the name of a claim's experiment are none of its plan: a setting that the published ones have
    otherwise, or not at all. None where there is no such setting, no such claim, or no run of it is published."""
    if found.experiment not in read_claims():
        return None
    if (published := _published_configurations().get(found.experiment)) is None:
        return None
    own, plans = (table_settings(one) for one in (found.reference.config, published))
    for key in sorted(own.keys() | plans.keys()):
        if own.get(key) != plans.get(key):
            return (
                f"{found.experiment} is the name of a plan, whose runs have {key} {plans.get(key, 'not set')}, and "
                f"these {own.get(key, 'not set')}: they get no verdict of the plan; experiment_name= names runs of "
                "your own"
            )
    return None


def _head(found: Aggregate) -> list[str]:
    """What stands above the figures of an experiment."""
    base = f"tables/{safe_name(found.experiment)}"
    links = f"[All columns]({quote(f'{base}.md')}), [CSV]({quote(f'{base}.csv')}).\n"
    title = f"{TASKS[found.task].title}, {inert(found.reference['dataset_label'])}.\n"
    return [f"## {inert(found.experiment)}\n", title, short_table(found), links]


def _unended(results: Path, found: Aggregate) -> list[str]:
    """The runs of an experiment that have begun and left no record, so that nobody takes the table for all of them."""
    begun = (results / "runs" / safe_name(found.experiment)).glob(f"*/seed*/{CONFIG}")
    unended = sorted(path.parent for path in begun if not (path.parent / RECORD).is_file())
    names = ", ".join(f"{folder.parent.name} {folder.name.partition('-')[0]}" for folder in unended)
    return [f"Begun and not ended, so in no number here: {inert(names)}.\n"] if unended else []
