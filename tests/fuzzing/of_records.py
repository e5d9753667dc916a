"""Records, histories and scores: read as they are, to the last digit, or refused."""

import copy
import csv
import json
import math
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from record_factory import make_record

from fuzzing.damage import damaged, values
from fuzzing.judge import REFUSED, Broken, outcome, refused
from fuzzing.target import Target
from gpam_suite.records.folder import RECORD, SCHEMA_VERSION, read_record
from gpam_suite.records.lines import HISTORY, SCORES, read_history, read_scores
from gpam_suite.report.page import build

_RECORDS = [{"schema_version": SCHEMA_VERSION, **make_record(task=task)} for task in ("lm", "nmt")]
WHOLE = [json.dumps(record, indent=2).encode() for record in _RECORDS]
ROWS = b'{"update": 20, "split": "train", "loss": 1.25e-3}\n{"update": 40, "split": "valid", "loss": null}\n'


def _same(found: Any, wanted: Any) -> bool:
    """Equal with every digit and type; a NaN or infinity anywhere raises."""
    return json.dumps(found, allow_nan=False) == json.dumps(wanted)


def record_bytes(content: bytes, folder: Path) -> None:
    (folder / RECORD).write_bytes(content)
    found = outcome(lambda: read_record(folder).data)
    if not refused(found, intact=content in WHOLE) and not _same(found, json.loads(content)):
        raise Broken(f"{content!r} was read as {found}")


@st.composite
def changed(draw: st.DrawFn, *whole: Any) -> Any:
    """One of ``whole``, up to three of its nodes replaced, removed or added."""
    tree = copy.deepcopy(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 3))):
        node = tree
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(node[key], dict | list) and node[key] and draw(st.integers(0, 3)):
                node = node[key]
                continue
            kind = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
            if kind == "replace":
                node[key] = draw(values())
            elif kind == "remove":
                del node[key]
            elif isinstance(node, dict):
                node[draw(st.text(max_size=5))] = draw(values())
            break
    return tree


def _table(record: dict[str, Any], folder: Path) -> None:
    """A record that is read gives a table, which holds its number, or its experiment is left out; one that cannot be
    read is in none, nor is the table of an earlier record there still."""
    results = folder / "results"
    run = results / "runs" / "small_lm" / "softmax-default" / "seed1-0"
    run.mkdir(parents=True, exist_ok=True)
    try:
        (run / RECORD).write_text(json.dumps(record), encoding="utf-8")
    except (ValueError, UnicodeEncodeError):
        return  # not JSON at all: an infinity, half a character
    found = outcome(lambda: read_record(run))
    outcome(lambda: build(results))
    table = results / "tables" / "small_lm.csv"
    if found is REFUSED and table.is_file():
        raise Broken("a record that cannot be read is in a table")
    if table.is_file() and record["status"] == "finished":
        with table.open(encoding="utf-8", newline="") as file:
            (row,) = csv.DictReader(file)
        number = record["metrics"]["test_perplexity"]
        if not math.isclose(float(row["mean"]), number, rel_tol=1e-5):
            raise Broken(f"{number} became {row['mean']}")


def rows(content: bytes, folder: Path) -> None:
    (folder / HISTORY).write_bytes(content)
    (folder / SCORES).write_bytes(content)
    history, scores = outcome(lambda: read_history(folder)), outcome(lambda: read_scores(folder))
    *whole, torn = content.split(b"\n")
    for read in (history, scores):
        if not refused(read, intact=content == ROWS) and not _same(read, [json.loads(line) for line in whole]):
            raise Broken(f"{content!r} was read as {read}")
    if torn and scores is not REFUSED:
        raise Broken(f"{content!r} is cut off, and gave the scores {scores}")


TARGETS = (
    Target("records", lambda _: damaged(*WHOLE), record_bytes, 500, 60),
    Target("records, changed as JSON, and their tables", lambda _: changed(_RECORDS[0]), _table, 150, 8),
    Target("histories and scores", lambda _: damaged(ROWS) | st.binary(max_size=30), rows, 1_000, 100),
)
