"""Where on the test set B wins and loses: counts, by length, and the sentences or documents that differ most."""

import contextlib
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.common import formatting
from gpam_suite.common.sections import Section, Table
from gpam_suite.common.tasks import LM, TASKS
from gpam_suite.records.folder import HYPOTHESES, SCORES, Record
from gpam_suite.records.metrics import METRIC_LABEL
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.unit_wins import UnitWins, unit_wins

MOST = 5
DATA = Path("data")  # where prepare leaves its folders by default (configs/paths/default.yaml)


def where(table: Aggregate) -> list[Section]:
    """The sections of B's wins and losses; one line where a side has no scores to compare."""
    title, unit = "Where", table.units.removesuffix("s")
    a, b = table.rows
    if table.test_set(b) is None or not a.resampled or not b.resampled:
        return [Section(title, [f"Nothing to say: scores are missing, or the test set has one {unit}."])]
    found, (score, size) = unit_wins(a.resampled, b.resampled), _words(table)
    wins, losses, ties = found.counts
    counted = (
        f"By {unit} ({score}, mean over seeds) B wins {formatting.count(wins)}, loses "
        f"{formatting.count(losses)} and ties {formatting.count(ties)} of {formatting.count(len(found.gain))}."
    )
    metric = METRIC_LABEL[table.metric]
    head = [size, table.units.capitalize(), "B wins", "B loses", "Ties", f"A: {metric}", f"B: {metric}", "Difference"]
    lines = []
    for one in found.buckets:
        counts = map(formatting.count, (one.units, one.wins, one.losses, one.ties))
        lines.append([f"{one.shortest} to {one.longest}", *counts, *_sides(one.a, one.b, table.digits)])
    return [Section(title, [counted, Table(head, lines)]), _largest(table, found, unit)]


def _words(table: Aggregate) -> tuple[str, str]:
    """What a unit is scored by, and what its size is."""
    task = TASKS[table.task]
    return task.unit_score.format(unit=table.unit), task.unit_size.format(unit=table.unit).capitalize()


def _sides(a: float, b: float, digits: int) -> list[str]:
    return [formatting.number(a, digits), formatting.number(b, digits), formatting.signed(b - a, digits)]


def _largest(table: Aggregate, found: UnitWins, unit: str) -> Section:
    """The units with the largest gains and losses; with their text where the runs or the prepared data hold it."""
    (wins, losses), (score, size) = found.extremes(MOST), _words(table)
    digits = 3 if table.task == LM.name else 2
    lines = [
        [str(index), formatting.count(found.sizes[index]), *_sides(*found.scores(index), digits)]
        for index in [*wins, *losses]
    ]
    head = [unit.capitalize(), size, f"A: {score}", f"B: {score}", "Difference"]
    order = f"Numbered from 0, as in {SCORES}: {len(wins)} where B gains most, then {len(losses)} where it loses most."
    section = Section("Where they differ most", [order, Table(head, lines)])
    if unit == "sentence":
        section.blocks += _quotations(table, found, [*wins, *losses])
    return section


def _quotations(table: Aggregate, found: UnitWins, sentences: list[int]) -> list[str]:
    """Source and reference (where the data is prepared in :data:`DATA`), and what a seed of either side wrote."""
    original = _test_set(table.reference)
    written = [_hypotheses(row, len(found.gain)) for row in table.rows]
    quoted = []
    for index in sentences:
        lines = [f"  {name}: {texts[index]}" for name, texts in original.items()]
        for name, texts, seed in zip("AB", written, found.telling_seeds(index), strict=True):
            if seed in texts:
                lines.append(f"  {name}, seed {seed}: {texts[seed][index]}")
        quoted += ["\n".join([f"sentence {index}", *lines])] if lines else []
    return quoted


def _hypotheses(row: Row, count: int) -> dict[int, list[str]]:
    """Translations by seed, of the seeds whose folder holds them."""
    found = {}
    for record in row.finished:
        path = record.folder / HYPOTHESES
        if path.is_file():
            found[record["seed"]] = lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            if len(lines) != count:
                raise UsageError(
                    f"{path} has {len(lines)} lines but the test set {count} sentences: restore it from git, or "
                    "evaluate the run again."
                )
    return found


def _test_set(record: Record) -> dict[str, list[str]]:
    """Source and reference of the test set from prepared data with the record's checksum; empty where there is none."""
    from gpam_suite.data.prepared import MANIFEST, Prepared
    from gpam_suite.data.text.lines import read_lines

    for path in sorted(DATA.glob(f"*/{MANIFEST}")):
        with contextlib.suppress(OSError, ValueError):  # a preparation that is no whole one is not quoted
            prepared, split = Prepared.load(path.parent), record["protocol"]["split"]
            if prepared.manifest.get("checksum") != record["data"]["checksum"]:
                continue
            texts = {"source": prepared.source_text(split), "reference": prepared.reference(split)}
            return {name: read_lines(text) for name, text in texts.items()}
    return {}
