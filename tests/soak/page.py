"""``docs/reliability.md``, made of the promises and of the records that ``make soak`` left."""

from gpam_suite.common.markup import markdown
from gpam_suite.records import environment
from soak import of_input
from soak.part import Part
from soak.parts import PARTS
from soak.record import read

PAGE = environment.ROOT / "docs" / "reliability.md"
_NO_FIGURE = "the test covers it whole"
_NOT_YET = "not run yet: `{command}`"

_HEAD = """# Reliability

What is promised, the test that fails when the promise is broken, and what the full count gave. The tests are samples
that CI runs; the figures are of `make soak` (`make soak PARTS={example}` for some of it), whose records lie in
`results/reliability/`. This page is made of them.
"""

NOTES = {
    "Killed anywhere": """A run goes on from its last checkpoint, mid-epoch too: dropout's random numbers are drawn from
the seed and the update, batches from the seed and the epoch, and rows of the history behind the checkpoint are written
again. What had been prepared, trained or recorded stays; at most `checkpoint.save_interval_updates` updates are done
twice (none after SIGTERM). When the machine itself stops, checkpoints and records are as safe as `fsync` makes them.
""",
    "Determinism": """"The same bits" holds on one machine, with the same versions (each record lists them) and the same
`gpu.threads`, as a sum over threads is taken in another order. On a GPU, kernels that add atomically (embedding
gradients among them) may change the last bits from run to run. Between machines these may differ: matrix products of
another library or processor, and with them every number in its last digits; `exp` and `tanh`; the text of
`python_docs`, which is that of the installed Python, and of `cldr_de_en`, which is that of the installed `babel`
(their checksums are in the record, and a table refuses to mix them). Which batches come when, and what is dropped out
on a CPU, follows from the seed alone. Speed, memory and dates are measurements and never the same.
""",
    **of_input.NOTES,
}
"""Section to what stands below its table."""


def page() -> str:
    """The page's text."""
    sections = list(dict.fromkeys(part.section for part in PARTS))
    example = next((part.name for part in PARTS if part.work), "NAME")
    parts = [_HEAD.format(example=example)]
    for section in sections:
        rows = [[part.promise, f"`{part.test}`", figure(part)] for part in PARTS if part.section == section]
        parts += [f"## {section}\n", markdown(["Promise", "Test", "Figure"], rows)]
        if section in NOTES:
            parts.append(NOTES[section])
    return "\n".join(parts).rstrip() + "\n"


def figure(part: Part) -> str:
    """The sentence with the part's figures, and how long they took."""
    if part.work is None:
        return _NO_FIGURE
    record = read(part)
    if record is None:
        return _NOT_YET.format(command=f"make soak PARTS={part.name}")
    return f"{part.figure.format(**record['figures'])} (`{record['command']}`, {record['seconds']:,.0f} s)"
