"""The numbers the paper is known to report (``results/paper/*.yaml``), each with the mark that says how it is known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpam.errors import UsageError
from gpam_suite.common.formatting import MISSING, number

PAPER_BLEU = 0.52
"""The largest gain in BLEU that the abstract of the paper's first version reports."""
_OURS = Path(__file__).resolve().parents[3] / "results" / "paper"
_KEYS = {"task", "dataset", "metric", "baseline", "dagpam", "mark", "note"}


@dataclass(frozen=True)
class Paper:
    """One publication: its ``rows`` (task, dataset, metric, baseline, dagpam, mark, note), ``notes`` and ``marks``."""

    title: str
    source: str
    marks: dict[str, str]
    rows: list[dict[str, Any]]
    notes: list[dict[str, str]]


def read_papers(results: Path) -> list[Paper]:
    """What ``results/paper`` holds, or, where there is no such folder, what this project ships.

    Raises:
        UsageError: a file lacks a key or uses a mark that it does not explain.
    """
    folder = Path(results) / "paper"
    papers = []
    for path in sorted((folder if folder.is_dir() else _OURS).glob("*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        try:
            paper = Paper(data["title"], data["source"], data["marks"], data["rows"], data["notes"])
            for row in paper.rows:
                if missing := _KEYS - row.keys():
                    raise KeyError(", ".join(sorted(missing)))
            for item in [*paper.rows, *paper.notes]:
                if item["mark"] not in paper.marks:
                    raise KeyError(f"marks.{item['mark']}")
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{path} has no {error}: every row needs {', '.join(sorted(_KEYS))}, its mark explained."
            ) from None
        papers.append(paper)
    return papers


def paper_rows(papers: list[Paper], task: str) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the paper's numbers for one task, as text."""
    header = ["Data set", "Metric", "Baseline", "daGPAM", "Mark", "Note"]
    cells = [
        [
            row["dataset"],
            row["metric"],
            number(row["baseline"]),
            number(row["dagpam"]),
            f"[{row['mark']}]",
            row["note"] or MISSING,
        ]
        for paper in papers
        for row in paper.rows
        if row["task"] == task
    ]
    return header, cells


def paper_lines(papers: list[Paper]) -> list[str]:
    """The notes, each with its mark, and what the marks mean."""
    lines = [f"{note['note']} [{note['mark']}]" for paper in papers for note in paper.notes]
    for paper in papers:
        marks = "; ".join(f"[{mark}] {meaning}" for mark, meaning in paper.marks.items())
        lines.append(f"Source: {paper.title}, {paper.source}. Marks: {marks}.")
    return lines
