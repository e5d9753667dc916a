"""How numbers look in tables, captions and sentences: the same everywhere, and the same bytes for the same numbers."""

from collections.abc import Iterable

MISSING = "–"
_MOST_DIGITS = 6


def number(value: float | None, digits: int = 2) -> str:
    """Fixed decimals; a number that rounds to zero has no sign; None is a dash."""
    if value is None:
        return MISSING
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed(value: float | None, digits: int = 2) -> str:
    """Like :func:`number`, with a plus sign when above zero."""
    text = number(value, digits)
    return f"+{text}" if value is not None and float(text) > 0 else text


def plus_minus(mean: float | None, deviation: float | None, digits: int = 2) -> str:
    """``mean ± deviation``; the mean alone where there is no deviation (one seed)."""
    return number(mean, digits) if deviation is None else f"{number(mean, digits)} ± {number(deviation, digits)}"


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """``[low, high]``, or a dash; with :func:`enough` decimals."""
    if low is None or high is None:
        return MISSING
    digits = enough(low, high, digits)
    return f"[{number(low, digits)}, {number(high, digits)}]"


def enough(low: float | None, high: float | None, digits: int = 2) -> int:
    """``digits``, or more where a bound beside zero would else look like it."""
    while digits < _MOST_DIGITS and any(bound and not float(f"{bound:.{digits}f}") for bound in (low, high)):
        digits += 1
    return digits


def estimate(value: float | None, low: float | None, high: float | None, digits: int = 2) -> str:
    """A difference and its interval, where there is one, with as many decimals: ``-0.80 [-2.00, 0.40]``."""
    if low is None or high is None:
        return signed(value, digits)
    return f"{signed(value, enough(low, high, digits))} {interval(low, high, digits)}"


def percent(value: float | None) -> str:
    """A signed share in percent: 0.0043 is ``+0.43 %``."""
    return MISSING if value is None else f"{signed(100 * value)} %"


def count(value: float | None) -> str:
    """A whole number with a comma between thousands."""
    return MISSING if value is None else f"{round(value):,}"


def p_number(value: float | None) -> str:
    """Three decimals, never a bare zero, and more where they would hide on which side of 0.05 it is."""
    if value is None:
        return MISSING
    digits = 3
    while round(value, digits) == 0.05 != value:
        digits += 1
    return "< 0.001" if value < 0.001 else f"{value:.{digits}f}"


def p_value(value: float | None) -> str:
    """:func:`p_number` for a sentence: ``p = 0.012``."""
    number = p_number(value)
    return number if value is None else f"p {number}" if value < 0.001 else f"p = {number}"


def plural(number_of: int, singular: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number_of} {singular}{'' if number_of == 1 else 's'}"


def listed(values: Iterable[object]) -> str:
    """Distinct values in order, separated by commas (semicolons where a value has one); a dash when there are none."""
    texts = dict.fromkeys(str(value) for value in values)
    return ("; " if any("," in text for text in texts) else ", ").join(texts) or MISSING


def duration(seconds: float) -> str:
    """``12 s``, ``3 min`` or ``2.5 h``, for a person who waits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
