"""Cells of text as a Markdown or a LaTeX table."""

from collections.abc import Sequence

from gpam_suite.common.formatting import MISSING

_TEXT_COLUMNS = {"Model", "Status", "Data set", "Metric", "Note", "Mark", "Mechanism", "Formula", "Row sum"}
_TEXT_COLUMNS |= {
    "Case",
    "Contender",
    "Ratio",
    "Met",
    "Perturbation",
    "Weights lie in",
    "Negative",
    "Source",
    "Departs from its source",
    "Causal",
    "Cross",
    "Incremental",
    "Option",
    "Default",
    "Meaning",
    "Setting",
    "Fact",
    "Number",
    "Promise",
    "Test",
    "Figure",
    "Experiment",
    "Quantity on the validation set",
    "Row of the paper",
    "What",
    "Column",
    "Stack",
    "Projection",
    "Network",
    "Claim",
    "The paper",
    "Verdict",
    "Trained?",
    "Against",
}


def markdown(head: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a status column with nothing to say is left out, numbers are set to the right."""
    if head[-1] == "Status" and all(line[-1] == MISSING for line in table):
        head, table = head[:-1], [line[:-1] for line in table]
    rule = [":---" if title in _TEXT_COLUMNS else "---:" for title in head]
    lines = [head, rule, *table]
    return "".join(
        f"| {' | '.join(_one_line(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def latex(head: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    """A ``tabular`` for booktabs, to be put into a table environment."""
    lines = [" & ".join(_escape_latex(cell) for cell in line) + r" \\" for line in table]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 2)}l}}",
            r"\toprule",
            " & ".join(_escape_latex(title) for title in head) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _one_line(text: str) -> str:
    return " ".join(str(text).split())


def _escape_latex(text: str) -> str:
    replaced = {
        "\\": r"\textbackslash{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "↓": r"$\downarrow$",
        "↑": r"$\uparrow$",
        MISSING: "--",
    }
    return "".join(replaced.get(character, character) for character in _one_line(text))
