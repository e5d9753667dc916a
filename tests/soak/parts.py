"""Every promise of docs/reliability.md, in its order."""

from gpam.errors import UsageError, did_you_mean
from soak import of_input, of_runs
from soak.part import Part

PARTS: tuple[Part, ...] = (*of_runs.PARTS, *of_input.PARTS)


def named(names: str) -> list[Part]:
    """The parts with figures that ``names`` lists, separated by commas; all of them for an empty text.

    Raises:
        UsageError: no such part.
    """
    known = {part.name: part for part in PARTS if part.work}
    wanted = [name for name in names.split(",") if name] or list(known)
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"PARTS: no part '{name}'{did_you_mean(name, known)} (wanted one of {', '.join(known) or 'none'})"
            )
    return [known[name] for name in wanted]
