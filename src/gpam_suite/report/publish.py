"""``results/``: what is published of the runs, and how new ones come in.

Of each run its record, configuration, test-set scores and a part of its history are kept, in one archive an experiment.
Everything else (``runs.csv``, ``curves.csv``, ``comparisons.csv``, ``configurations.yaml``, the figures, the tables
within the pages) is made of the archives, again and again the same.
"""

import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpam.errors import UsageError, did_you_mean
from gpam_suite.common.files import write_files
from gpam_suite.common.places import PUBLISHED, ROOT
from gpam_suite.config.identity import CONFIG
from gpam_suite.records import archives, store
from gpam_suite.records.folder import RECORD, Record, folders_of_runs, read_each
from gpam_suite.records.history_rows import GRADIENT, SCALAR
from gpam_suite.records.lines import HISTORY, SCORES, read_history
from gpam_suite.report import early, perturbed_section
from gpam_suite.report.claims import claim_parts, verdicts
from gpam_suite.report.panels.alignment import by_length, sentences
from gpam_suite.report.panels.gains import claimed_gains
from gpam_suite.report.panels.inside import inside_models
from gpam_suite.report.panels.training import by_schedule, trainings
from gpam_suite.report.plotting import Plot, render
from gpam_suite.report.provenance import PUBLISH
from gpam_suite.report.run_columns import columns_page, curve_rows, run_rows
from gpam_suite.report.tables import csv_text, six_digits
from gpam_suite.report.tuning_grid import grids, search_curves
from gpam_suite.report.unplanned import unplanned_parts
from gpam_suite.stats import perturbed
from gpam_suite.stats.aggregate import aggregate, read_aggregates
from gpam_suite.stats.bootstrap import checked_scores
from gpam_suite.stats.comparisons import comparisons
from gpam_suite.stats.finding import Finding, as_json, compared, findings
from gpam_suite.stats.rows import Aggregate
from gpam_suite.stats.tuning import FOLDER as TUNING
from gpam_suite.stats.tuning import grids_of

log = logging.getLogger(__name__)

EXPERIMENTS = "experiments.yaml"
EARLY = "early training"
_LOOKED_INTO = {"inside": inside_models, "alignment": by_length, "sentences": sentences}
_DRAWN_OF_CLAIM = (*_LOOKED_INTO, "curves", "schedules", "perturbed", "perturbed-table")
_WAITS = "Drawn when all seeds of the plan are there and were looked into.\n"
PART = re.compile(r"(<!-- (table|figure): ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""What pages leave to :func:`filled`: ``<!-- table: NAME -->``, lines, ``<!-- end -->``, or the same of a figure."""


# ------------------------------------------------------------------------------------------------------- what comes in


def publish(results: Path, published: Path = PUBLISHED) -> list[Path]:
    """Put the runs of the folder ``results``, what was looked at in them, and reference rows, into ``published``.

    Runs that are published already stay; one of the same name is replaced, but a finished one by a finished one alone.

    Raises:
        UsageError: a record is broken, or is not of its configuration and its scores; runs do not compare, among
            themselves or with those that are published; or an experiment has no title in ``experiments.yaml``. Nothing
            is written.
    """
    aggregates = read_aggregates(results)
    for record in (record for found in aggregates for record in found.records):
        checked_scores(record)
    _titles(published, aggregates)
    files: dict[Path, bytes] = {}
    before = folders_of_runs(published)
    for name, folders in folders_of_runs(results).items():
        own, together = _beside(before.get(name, []), folders)
        if together:
            aggregate(together)  # refuses those that make no table with what stays
        files |= _merged(published / "runs" / name, _kept(own, results / "runs" / name))
    for name in (store.FOLDER, store.PERTURBED):
        found = archives.find(results / name, "*.json") + archives.find(results / name, "runs/*/*/*.json")
        for path in found:
            store.read(path)  # what is damaged is refused before anything is written
        kept = {path.relative_to(results / name).as_posix(): archives.read_bytes(path) for path in found}
        files |= _merged(published / name, kept)
    for path in (results / "references").glob("*.json"):
        store.read(path)
        files[published / "references" / path.name] = path.read_bytes()
    tuned, searched, before = [], [], folders_of_runs(published / TUNING)
    for name, folders in folders_of_runs(results / TUNING).items():
        own, together = _beside(before.get(name, []), folders)
        tuned, searched = tuned + own, searched + together
    grids_of(searched)  # refuses two runs of one setting
    return write_files(files | _merged(published / TUNING, _kept(tuned, results / TUNING)))


def _beside(before: Iterable[Path], folders: Iterable[Path]) -> tuple[list[Path], list[Record]]:
    """Of an experiment's runs in ``folders`` those that come in, and all that are then published."""
    there, own = _by_name(before), _by_name(folders)
    finished = {run for run, record in there.items() if record["status"] == "finished"}
    for run in [run for run in own if run in finished and own[run]["status"] != "finished"]:
        log.warning("%s has not finished, and the published run of its name has: that stays", own.pop(run).folder)
    return [record.folder for record in own.values()], [*(there | own).values()]


def _by_name(folders: Iterable[Path]) -> dict[tuple[str, ...], Record]:
    """The records of an experiment's runs by the last two parts of their folders, alike in every results folder."""
    return {record.folder.parts[-2:]: record for record in read_each(folders)}


def _kept(runs: Iterable[Path], folder: Path) -> dict[str, bytes]:
    """What is published of the runs, by its name below ``folder``: of their histories the validations, and to three
    digits the norms of gradients and what is learned beside matrices."""
    kept = {}
    for run in runs:
        whole = (run / name for name in (RECORD, CONFIG, SCORES))
        own = {path.name: archives.read_bytes(path) for path in whole if archives.is_file(path)}
        own[HISTORY] = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in _published_rows(run)).encode()
        kept |= {(run / name).relative_to(folder).as_posix(): content for name, content in own.items()}
    return kept


def _published_rows(run: Path) -> Iterator[dict[str, Any]]:
    for row in read_history(run):
        if row.get("split") == "valid":
            yield row
        elif row.get("split") in (GRADIENT, SCALAR):
            yield {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in row.items()}


def _merged(folder: Path, files: Mapping[str, bytes]) -> dict[Path, bytes]:
    """The archive that stands for ``folder``, with those of ``files`` in it that are not published yet."""
    archive = archives.archive_of(folder)
    before = archives.unpack(archive) if archive.is_file() else {}
    new = {name: content for name, content in files.items() if not _is_there(folder / name, content)}
    return {archive: archives.pack({**before, **new})} if new else {}


def _is_there(path: Path, content: bytes) -> bool:
    return archives.is_file(path) and archives.read_bytes(path) == content


# --------------------------------------------------------------------------------------------------- what is made of it


def remake(published: Path = PUBLISHED, pages: Path = ROOT) -> dict[Path, str | bytes]:
    """Every file that is made of the archives: path to content, nothing written yet.

    Raises:
        UsageError: a broken archive, runs that do not compare, or a page that asks for a part that there is not.
    """
    aggregates = read_aggregates(published)
    titles, hardly_trained = _titles(published, aggregates)
    aggregates.sort(key=lambda found: list(titles).index(found.experiment))
    records = sorted((record for found in aggregates for record in found.records), key=lambda record: record.folder)
    analyses = store.read_runs(published, records)
    before = [found for found in aggregates if found.experiment in hardly_trained]
    said = findings(published, aggregates)
    whole = {name: one for name, one in said.items() if one.whole}
    shown = {found.experiment: compared(found, said) for found in aggregates}
    lines = [line for found in shown.values() for line in comparisons(found)]
    files: dict[Path, str | bytes] = {
        published / "runs.csv": csv_text(run_rows(aggregates, analyses)),
        published / "curves.csv": csv_text(curve_rows(aggregates)),
        published / "comparisons.csv": csv_text(six_digits(lines)),
        published / "configurations.yaml": _configurations(aggregates),
        published / "columns.md": columns_page(),
        **{published / "comparisons" / f"{name}.json": as_json(one) for name, one in whole.items()},
    }
    old = {record["recipe"] for found in before for record in found.records}
    parts = {
        **early.tables(titles, before, published),
        **_of_searches(published, old),
        "verdicts": verdicts(said),
        **claim_parts(shown, said),
        **unplanned_parts(shown, said),
        **dict.fromkeys((f"{kind}-{name}" for name in titles for kind in _DRAWN_OF_CLAIM), _WAITS),
    }
    figures = [search_curves(published, old), claimed_gains(whole)]
    for name, one in whole.items():
        tables, drawn = _of_claim(shown[name], one, analyses, published)
        parts |= tables
        figures += drawn
    texts = {page: page.read_text(encoding="utf-8") for page in pages_of(pages)}
    asked = {match[3] for text in texts.values() for match in PART.finditer(text)}
    drawn = [plot for plot in figures if plot and plot.name in asked]
    files |= {published / "figures" / f"{plot.name}.svg": render(plot) for plot in drawn}
    for page, text in texts.items():
        folder = Path(os.path.relpath(published, page.parent))
        captioned = {
            plot.name: plot.markdown(folder / "figures" / f"{plot.name}.svg", plot.caption.partition(". ")[0])
            for plot in drawn
        }
        files[page] = filled(text, parts | captioned, page)
    return files


def _of_searches(published: Path, old: Collection[str]) -> dict[str, str]:
    """The tables of the searches, those of recipes of early training (``old``) apart."""
    before, recent = [], []
    for (_, recipe), text in grids(published).items():
        (before if recipe in old else recent).append(text)
    return {"early-tuning": "\n".join(before), "tuning": "\n".join(recent) or "None is published yet.\n"}


def _of_claim(
    found: Aggregate, said: Finding, analyses: Mapping[Path, Any], published: Path
) -> tuple[dict[str, str], list[Plot | None]]:
    """The tables and figures that need all seeds of a claim's model: its trainings, and what was looked into."""
    name = found.experiment
    row = found.row_of(said.claim.model, seeds=1)  # of a plan of three seeds one may have diverged
    figures = [trainings(found, said, f"curves-{name}"), by_schedule(found, said, f"schedules-{name}")]
    figures += [plot(found, row, analyses, f"{kind}-{name}") for kind, plot in _LOOKED_INTO.items()]
    if not (noise := perturbed.find(published, found)):
        return {}, figures
    figures.append(perturbed_section.plot(noise, f"perturbed-{name}", PUBLISH))
    return {f"perturbed-table-{name}": perturbed_section.table(noise)}, figures


def stale(files: Iterable[Path], published: Path = PUBLISHED) -> list[Path]:
    """Figures and tests of claims that :func:`remake`, whose ``files`` these are, made once and makes no longer."""
    there = [*published.glob("figures/*.svg"), *published.glob("comparisons/*.json")]
    return sorted(set(there) - set(files))


def pages_of(root: Path) -> list[Path]:
    """The pages below ``root`` that people write and leave parts of to :func:`filled`."""
    pages = [root / "README.md", *sorted((root / "results").glob("*.md"))]
    return [page for page in pages if page.is_file() and PART.search(page.read_text(encoding="utf-8"))]


def filled(text: str, parts: Mapping[str, str], page: Path) -> str:
    """``text`` of ``page``, which people write, with each marked :data:`PART` replaced by ``parts[NAME]``.

    Raises:
        UsageError: the page asks for a part that there is not.
    """

    def part(match: re.Match[str]) -> str:
        if (name := match[3]) not in parts:
            raise UsageError(f"{page} asks for the {match[2]} '{name}'{did_you_mean(name, parts)}, there is none.")
        return f"{match[1]}\n{parts[name]}\n{match[4]}"

    return PART.sub(part, text)


def _titles(published: Path, aggregates: Iterable[Aggregate]) -> tuple[dict[str, str], Collection[str]]:
    """What people call each experiment, and those that are early training, by ``experiments.yaml``."""
    path = published / EXPERIMENTS
    kinds = yaml.safe_load(path.read_text(encoding="utf-8"))
    titles = kinds["trained"] | kinds[EARLY]
    if missing := sorted({found.experiment for found in aggregates} - titles.keys()):
        raise UsageError(f"{path} has no title for {', '.join(missing)}: say there what people are to call it.")
    return titles, kinds[EARLY].keys()


def _configurations(aggregates: list[Aggregate]) -> str:
    """One configuration an experiment: that of its first run; what the others change is in ``runs.csv``."""
    found = {one.experiment: one.reference.config for one in aggregates}
    head = "# Of each experiment the configuration of one run; the others differ in seed, model and what names a row.\n"
    return head + yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120)
