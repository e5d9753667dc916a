"""``results/``: what is published of the runs, and how new ones come in.

Of each run its record, configuration, test-set scores and validations are kept, in one archive an experiment.
Everything else (``runs.csv``, ``curves.csv``, ``comparisons.csv``, ``configurations.yaml``, the figures, the tables
within the pages) is made of the archives, again and again the same.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpam.errors import UsageError
from gpam_suite.common.files import write_files
from gpam_suite.common.markup import markdown
from gpam_suite.config.run_paths import CONFIG
from gpam_suite.inside import store
from gpam_suite.inside.perturb.kinds import FOLDER as PERTURBED
from gpam_suite.records import archives
from gpam_suite.records.environment import PUBLISHED, ROOT
from gpam_suite.records.folder import HISTORY, RECORD, SCORES, folders_of_runs, read_history
from gpam_suite.report import early, markers, verdicts
from gpam_suite.report.panels import across
from gpam_suite.report.plotting import Plot, render
from gpam_suite.report.run_columns import CURVE_COLUMNS, INSIDE_COLUMNS, RUN_COLUMNS, curve_rows, run_rows
from gpam_suite.report.tables import comparisons, csv_text, six_digits
from gpam_suite.report.tuning_grid import FOLDER as TUNING
from gpam_suite.report.tuning_grid import grids
from gpam_suite.stats.aggregate import Aggregate, read_comparable
from gpam_suite.stats.bootstrap import checked_scores
from gpam_suite.stats.claim import Finding, as_json, findings

EXPERIMENTS = "experiments.yaml"
EARLY, COUNTED = "early training", "verdict"
PAGES = ("README.md", "results/README.md", "results/early-training.md")
CURVES_OF_EARLY = (
    "lm_wikitext2_deep",
    "lm_wikitext2_short",
    "lm_laptop",
    "nmt_multi30k_de_en",
    "nmt_tatoeba",
    "nmt_iwslt14_sample",
)


# ------------------------------------------------------------------------------------------------------- what comes in


def publish(results: Path, published: Path = PUBLISHED) -> list[Path]:
    """Put the runs of the folder ``results``, what was looked at in them, and reference rows, into ``published``.

    Runs that are published already stay; one of the same name is replaced.

    Raises:
        UsageError: a record is broken, or is not of its configuration and its scores; runs do not compare; or an
            experiment has no title in ``experiments.yaml``. Nothing is written.
    """
    runs, aggregates = _by_experiment(results), _comparable(results)
    for record in (record for found in aggregates for record in found.records):
        checked_scores(record)
    _experiments(published, {found.experiment for found in aggregates})
    files: dict[Path, bytes] = {}
    for name, own in runs.items():
        files |= _merged(published / "runs" / name, _kept(own, results / "runs" / name))
    for name in (store.FOLDER, PERTURBED):
        found = archives.find(results / name, "*.json") + archives.find(results / name, "runs/*/*/*.json")
        kept = {path.relative_to(results / name).as_posix(): _without_maps(path) for path in found}
        files |= _merged(published / name, kept)
    files |= {
        published / "references" / path.name: path.read_bytes() for path in (results / "references").glob("*.json")
    }
    tuned = [run for own in _by_experiment(results / TUNING).values() for run in own]
    return write_files(files | _merged(published / TUNING, _kept(tuned, results / TUNING)))


def _comparable(results: Path) -> list[Aggregate]:
    """The experiments below ``results``.

    Raises:
        UsageError: one of them cannot be a table.
    """
    aggregates, left_out = read_comparable(results)
    for name, reason in left_out.items():
        raise UsageError(f"{name}: {reason}")
    return aggregates


def _by_experiment(results: Path) -> dict[str, list[Path]]:
    return {name: own for name, own in folders_of_runs(results).items() if own}


def _kept(runs: Iterable[Path], folder: Path) -> dict[str, bytes]:
    """What is published of the runs, by its name below ``folder``: of their histories the validations alone."""
    kept = {}
    for run in runs:
        whole = (run / name for name in (RECORD, CONFIG, SCORES))
        own = {path.name: archives.read_bytes(path) for path in whole if archives.is_file(path)}
        valid = [row for row in read_history(run) if row.get("split") == "valid"]
        own[HISTORY] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in valid).encode()
        kept |= {(run / name).relative_to(folder).as_posix(): content for name, content in own.items()}
    return kept


def _without_maps(path: Path) -> bytes:
    """An analysis without the weights of single texts, which are most of it and of which no number is made."""
    found = store.read(path)
    return (
        json.dumps({key: value for key, value in found.items() if key != "maps"}, ensure_ascii=False) + "\n"
    ).encode()


def _merged(folder: Path, files: Mapping[str, bytes]) -> dict[Path, bytes]:
    """The archive that stands for ``folder``, with ``files`` in it; nothing where that changes nothing."""
    archive = archives.archive_of(folder)
    before = archives.unpack(archive) if archive.is_file() else {}
    after = {**before, **files}
    return {archive: archives.pack(after)} if after != before else {}


# --------------------------------------------------------------------------------------------------- what is made of it


def remake(published: Path = PUBLISHED, pages: Path = ROOT) -> dict[Path, str | bytes]:
    """Every file that is made of the archives: path to content, nothing written yet.

    Raises:
        UsageError: a broken archive, runs that do not compare, or a page that asks for a part that there is not.
    """
    aggregates = _comparable(published)
    plan = _experiments(published, {found.experiment for found in aggregates})
    order = {name: place for place, name in enumerate(plan)}
    aggregates.sort(key=lambda found: order[found.experiment])
    records = sorted((record for found in aggregates for record in found.records), key=lambda record: record.folder)
    analyses = store.read_runs(published, records)
    titles = {name: entry["title"] for name, entry in plan.items()}
    early_ones, counted = (
        [found for found in aggregates if plan[found.experiment]["shown"] == shown] for shown in (EARLY, COUNTED)
    )
    figures = _figures(titles, early_ones, counted)
    said = findings(published, aggregates)
    files: dict[Path, str | bytes] = {
        published / "runs.csv": csv_text(run_rows(records, analyses)),
        published / "curves.csv": csv_text(curve_rows(records)),
        published / "comparisons.csv": csv_text(
            six_digits(line for found in aggregates for line in comparisons(found))
        ),
        published / "configurations.yaml": _configurations(aggregates),
        published / "columns.md": _columns(),
        **{published / "comparisons" / f"{name}.json": as_json(one) for name, one in said.items()},
        **{_file(published, plot): render(plot) for plot in figures},
    }
    parts = _tables(published, titles, early_ones, counted, analyses, said)
    for page in (pages / name for name in PAGES):
        drawn = {plot.name: _shown(plot, published, page) for plot in figures}
        files[page] = markers.filled(page.read_text(encoding="utf-8"), parts | drawn, page)
    return files


def _experiments(published: Path, names: set[str]) -> dict[str, dict[str, str]]:
    """What ``experiments.yaml`` says of each experiment: what people call it, and where it is shown."""
    path = published / EXPERIMENTS
    plan = yaml.safe_load(path.read_text(encoding="utf-8"))
    if missing := sorted(names - plan.keys()):
        raise UsageError(f"{path} has no title for {', '.join(missing)}: say there what people are to call it.")
    return plan


def _figures(titles: Mapping[str, str], early_ones: list[Aggregate], counted: list[Aggregate]) -> list[Plot]:
    drawn = [
        across.curves(titles, [found for found in early_ones if found.experiment in CURVES_OF_EARLY], "early-curves"),
        across.gains(titles, early_ones, "early-differences"),
        across.sums(titles, early_ones, "early-grids"),
        across.curves(titles, counted, "curves"),
        across.gains(titles, counted, "differences"),
    ]
    return [plot for plot in drawn if plot]


def _tables(
    published: Path,
    titles: Mapping[str, str],
    early_ones: list[Aggregate],
    counted: list[Aggregate],
    analyses: Mapping[Path, Any],
    findings: Mapping[str, Finding],
) -> dict[str, str]:
    tuned, before = grids(published), {record["recipe"] for found in early_ones for record in found.records}
    return {
        "verdicts": verdicts.table(findings),
        "counted": verdicts.counted(titles, counted, findings),
        "early-facts": early.facts(early_ones),
        "early-references": early.references(titles, early_ones, published),
        "early-scores": early.scores(titles, early_ones),
        "early-sums": early.sums(titles, early_ones),
        "early-moving": early.moving(titles, early_ones),
        "early-lambdas": early.lambdas(titles, early_ones),
        "early-gradients": early.gradients(titles, early_ones),
        "early-collapse": early.collapse(titles, early_ones, analyses),
        "early-noise": early.noise(titles, early_ones, published),
        "early-tuning": "\n".join(text for (_, recipe), text in tuned.items() if recipe in before),
        "tuning": "\n".join(text for (_, recipe), text in tuned.items() if recipe not in before)
        or "None is published yet.\n",
    }


def _shown(plot: Plot, published: Path, page: Path) -> str:
    """The figure with its caption, as the page links it."""
    link = Path(os.path.relpath(_file(published, plot), page.parent)).as_posix()
    return f"![{plot.name}]({link})\n\n*{plot.caption}*\n"


def _file(published: Path, plot: Plot) -> Path:
    return published / "figures" / f"{plot.name}.svg"


def _configurations(aggregates: list[Aggregate]) -> str:
    """One configuration an experiment: that of its first run; what the others change is in ``runs.csv``."""
    found = {one.experiment: yaml.safe_load(archives.read_bytes(one.reference.folder / CONFIG)) for one in aggregates}
    head = "# Of each experiment the configuration of one run; the others differ in model, options and seed alone.\n"
    return head + yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120)


def _columns() -> str:
    runs = [[f"`{name}`", meaning] for name, (meaning, _) in RUN_COLUMNS.items()]
    runs += [[f"`{name}`", meaning] for name, meaning in INSIDE_COLUMNS.items()]
    curves = [[f"`{name}`", meaning] for name, meaning in CURVE_COLUMNS.items()]
    return (
        "\n".join(
            [
                "# Columns\n",
                "Made by `python scripts/publish.py`. An empty cell: not known, or not of this kind of run.\n",
                "## runs.csv, a row a run\n",
                markdown(["Column", "Meaning"], runs),
                "## curves.csv, a row a validation\n",
                markdown(["Column", "Meaning"], curves),
            ]
        ).rstrip()
        + "\n"
    )
