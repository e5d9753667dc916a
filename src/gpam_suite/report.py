"""``results/README.md``: the page somebody opens first, generated from records like everything it shows."""

from pathlib import Path
from urllib.parse import quote

from gpam_suite.aggregate import Aggregate, read_aggregates
from gpam_suite.analysis.inside import inside, render_inside
from gpam_suite.answers.glance import render_glance
from gpam_suite.answers.page import answered
from gpam_suite.figures import plots, render_figures
from gpam_suite.markup import markdown
from gpam_suite.paper import paper_lines, paper_rows, read_papers
from gpam_suite.perturbation.page import perturbed, render_perturbed
from gpam_suite.provenance import HOW_MADE, SPEED, command_block, provenance
from gpam_suite.reading import reading
from gpam_suite.records import safe_name, write_files
from gpam_suite.tables import render_tables, short_table
from gpam_suite.tuning import tuning

_TASK_TITLE = {"lm": "Language modelling", "nmt": "Translation", "recall": "Recall"}

_INTRODUCTION = """# Results

Generated from the records in `runs/`; the paper's own numbers, at the end, are read from `paper/`. Each run left a
folder with its record, configuration, history and test-set scores. Tables hold the mean and the sample standard
deviation over seeds, and every difference is to softmax under the same data, recipe and protocol. "Over seeds" asks
whether another seed would tell the same story; "on the test set" asks whether another test set would, for the models
that were trained. Of 95 % intervals that are not corrected for their number one in twenty excludes zero by chance
where there is no difference.
"""


def write_report(results: Path) -> Path:
    """Write ``results/README.md`` from all records; the figures and tables it links are written by :func:`build`.

    Raises:
        UsageError: broken records or runs that do not compare.
    """
    (path,) = write_files(_render(results, read_aggregates(results)))
    return path


def build(results: Path, experiment: str | None = None) -> list[Path]:
    """Tables and figures of every experiment (or of one) and the report of all; returns the paths written.

    Raises:
        UsageError: broken records or runs that do not compare; nothing is written.
    """
    everything = read_aggregates(results)
    names = {safe_name(experiment)} if experiment else {safe_name(found.experiment) for found in everything}
    chosen = [found for found in everything if safe_name(found.experiment) in names]
    if experiment and not chosen:
        chosen = read_aggregates(results, experiment)  # says which experiments there are
    tables, figures = render_tables(results, chosen), render_figures(results, chosen)
    looked = render_inside(results, chosen, everything) | render_perturbed(results, chosen)
    return write_files(
        {**tables, **figures, **render_glance(results, everything), **looked, **_render(results, everything)}
    )


def _render(results: Path, aggregates: list[Aggregate]) -> dict[Path, str]:
    parts = [_INTRODUCTION]
    if aggregates:
        parts += answered(results, aggregates)
        parts.append("".join(["The experiments:\n\n", *_contents(aggregates)]))
    else:
        parts.append("No run has been recorded yet.\n")
    parts += [part for aggregate in aggregates for part in _section(results, aggregate)]
    parts += inside(results, aggregates)
    parts += perturbed(results, aggregates)
    parts += tuning(results)
    parts += _deviations(results)
    parts += _papers(results)
    return {Path(results) / "README.md": "\n".join(parts)}


def _contents(aggregates: list[Aggregate]) -> list[str]:
    return [
        f"- [{found.experiment}](#{_anchor(found.experiment)}): {_TASK_TITLE[found.task]}, "
        f"{found.reference['dataset_label']}\n"
        for found in aggregates
    ]


def _anchor(title: str) -> str:
    """GitHub's anchor of a heading: lower case, spaces to hyphens, other punctuation dropped."""
    kept = "".join(character for character in title.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")


def _section(results: Path, aggregate: Aggregate) -> list[str]:
    name = safe_name(aggregate.experiment)
    table = [
        f"[All columns]({quote(f'tables/{name}.md')}), [CSV]({quote(f'tables/{name}.csv')}), "
        f"[LaTeX]({quote(f'tables/{name}.tex')}).\n"
    ]
    return [
        f"## {aggregate.experiment}\n",
        f"{_TASK_TITLE[aggregate.task]}, {aggregate.reference['dataset_label']}.\n",
        short_table(aggregate),
        *table,
        "What it shows:\n",
        "".join(f"- {sentence}\n" for sentence in [*reading(aggregate), SPEED]),
        *(plot.markdown(aggregate.experiment) for plot in plots(aggregate)),
        f"{HOW_MADE}\n",
        command_block(aggregate),
        "".join(f"- {line}\n" for line in provenance(aggregate)),
    ]


def _deviations(results: Path) -> list[str]:
    """What a person has to say about the runs, which no record knows."""
    path = Path(results) / "deviations.md"
    return ["## What did not go to plan\n", path.read_text(encoding="utf-8")] if path.is_file() else []


def _papers(results: Path) -> list[str]:
    papers = read_papers(results)
    parts = []
    for task, title in _TASK_TITLE.items():
        head, table = paper_rows(papers, task)
        if table:
            parts += [f"{title}:\n", markdown(head, table)]
    if not parts:
        return []
    warning = "Other data, models and scale: these numbers are not comparable with the tables above.\n"
    return ["## What the paper reports\n", warning, *parts, "".join(f"- {line}\n" for line in paper_lines(papers))]
