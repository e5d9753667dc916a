"""German-English pairs of localisation text: CLDR data (package ``babel``) and number words (``num2words``).

A sentence is a list of items joined as each language joins them ("a, b und c" / "a, b, and c"); an item is a date, an
interval, a time in its zone, a measure, a sum of money, a number in words, or a name of a country, language or script.
Word order, agreement, compounds and number formats differ between the languages. The text depends on the seed and the
versions of the two packages only.

Source of the data: Unicode CLDR (https://cldr.unicode.org), as shipped in babel.
"""

import datetime
import importlib.metadata
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.files import sha256
from gpam_suite.common.options import whole_number

LANGUAGES = ("de", "en")
Pair = tuple[str, str]  # German, English
_PATIENCE = 50  # attempts in a row without a new sentence before the options are called exhausted


def fingerprint() -> dict[str, str]:
    """Versions of the data's packages, and of this module."""
    return {name: importlib.metadata.version(name) for name in ("babel", "num2words")} | {
        "generator": sha256(Path(__file__).read_bytes())
    }


def generate(dataset: Mapping[str, Any]) -> dict[tuple[str, str | None], list[str]]:
    """Lines by (split, language). No sentence of valid or test occurs in another split, on either side.

    ``dataset`` has ``pairs``, ``valid_pairs``, ``test_pairs`` (how many), ``items`` (fewest and most in a sentence),
    ``seed``, and the languages ``source`` and ``target`` (German and English in either order).
    """
    if {dataset["source"], dataset["target"]} != set(LANGUAGES):
        raise UsageError(
            f"dataset.source={dataset['source']} dataset.target={dataset['target']}: this data set is German (de) and "
            "English (en)"
        )
    fewest, most = _item_range(dataset["items"])
    random = Random(whole_number(dataset["seed"], 0, "dataset.seed"))
    seen: tuple[set[str], set[str]] = (set(), set())
    lines: dict[tuple[str, str | None], list[str]] = {}
    for split, option in (("test", "test_pairs"), ("valid", "valid_pairs"), ("train", "pairs")):
        count = whole_number(dataset[option], 1, f"dataset.{option}")
        pairs = [_new_sentence(random, fewest, most, seen) for _ in range(count)]
        for side, language in enumerate(LANGUAGES):
            lines[split, language] = [pair[side] for pair in pairs]
    return lines


def _item_range(items: Any) -> tuple[int, int]:
    if not isinstance(items, list) or len(items) != 2:
        raise UsageError(
            f"dataset.items: got {items!r}, wanted the fewest and the most items of a sentence, like [1, 3]"
        )
    fewest, most = (whole_number(item, 1, "dataset.items") for item in items)
    if fewest > most:
        raise UsageError(f"dataset.items: got {items!r}, wanted the smaller number first")
    return fewest, most


def _new_sentence(random: Random, fewest: int, most: int, seen: tuple[set[str], set[str]]) -> Pair:
    for _ in range(_PATIENCE):
        pair = _sentence(random, random.randint(fewest, most))
        if pair[0] not in seen[0] and pair[1] not in seen[1]:
            seen[0].add(pair[0])
            seen[1].add(pair[1])
            return pair
    raise UsageError(
        f"dataset.items=[{fewest}, {most}]: no new sentence after {len(seen[0]):,} of them; ask for fewer pairs"
    )


def _sentence(random: Random, items: int) -> Pair:
    from babel.lists import format_list

    if items == 1:  # a name by itself is learnt or never seen: no test of translation
        return _clean(random.choice(_OPEN)(random))
    drawn = [random.choice(_OPEN + 2 * _NAMES)(random) for _ in range(items)]
    style = random.choice(("standard", "or"))
    joined = [
        format_list([item[side] for item in drawn], style=style, locale=language)
        for side, language in enumerate(LANGUAGES)
    ]
    return _clean((joined[0], joined[1]))


def _clean(pair: Pair) -> Pair:
    """CLDR's various spaces (thin, narrow, no-break) as plain ones."""
    return " ".join(pair[0].split()), " ".join(pair[1].split())


def _both(write: Callable[[str], str]) -> Pair:
    return write("de"), write("en")


def _day(random: Random) -> datetime.date:
    return datetime.date(1900, 1, 1) + datetime.timedelta(days=random.randrange(73_000))


def _date(random: Random) -> Pair:
    from babel.dates import format_date

    day, style = _day(random), random.choice(("full", "full", "long"))
    return _both(lambda language: format_date(day, style, locale=language))


def _part_of_year(random: Random) -> Pair:
    from babel.dates import format_skeleton

    day, skeleton = _day(random), random.choice(("yQQQQ", "MMMMEd", "MMMMW", "yMMMM"))
    return _both(lambda language: format_skeleton(skeleton, day, locale=language))


def _interval(random: Random) -> Pair:
    from babel.dates import format_interval

    first = _day(random)
    last = first + datetime.timedelta(days=random.choice((2, 9, 40, 500)) + random.randrange(20))
    return _both(lambda language: format_interval(first, last, "yMMMMd", locale=language))


@cache
def _zones() -> list[Pair]:
    """Long names of the time zones (Mitteleuropäische Normalzeit / Central European Standard Time)."""
    from babel import Locale

    german, english = (Locale(language).meta_zones for language in LANGUAGES)
    names = []
    for zone in sorted(set(german) & set(english)):
        left, right = german[zone].get("long", {}), english[zone].get("long", {})
        names += [(left[variant], right[variant]) for variant in sorted(set(left) & set(right))]
    return names


def _time(random: Random) -> Pair:
    from babel.dates import format_time, get_time_format

    time = datetime.time(random.randrange(24), random.randrange(60), random.randrange(60))
    zone = random.choice(_zones())

    def write(language: str) -> str:
        name = zone[LANGUAGES.index(language)].replace("'", "''")
        pattern = get_time_format("full", language).pattern.replace("zzzz", f"'{name}'")
        return format_time(time, pattern, locale=language)

    return _both(write)


def _moment(random: Random) -> Pair:
    from babel.dates import format_date, get_datetime_format

    day, time = _day(random), _time(random)

    def write(language: str) -> str:
        pattern = get_datetime_format("full", locale=language).replace("'", "")
        return pattern.replace("{1}", format_date(day, "full", locale=language)).replace(
            "{0}", time[LANGUAGES.index(language)]
        )

    return _both(write)


def _amount(random: Random) -> int | float:
    """A number with few or many digits, now and then with a fraction."""
    whole = random.randrange(2, 10 ** random.randint(1, 6))
    return whole + random.randrange(1, 100) / 100 if random.random() < 0.4 else whole


@cache
def _units() -> list[str]:
    from babel import Locale

    german, english = (Locale(language).unit_display_names for language in LANGUAGES)
    both = sorted(set(german) & set(english))
    return [unit for unit in both if "long" in german[unit] and "long" in english[unit]]


def _measure(random: Random) -> Pair:
    from babel.units import format_compound_unit, format_unit

    amount, unit = _amount(random), random.choice(_units())
    if random.random() < 0.3:
        per = random.choice(("second", "minute", "hour", "day", "week", "month", "year", "kilogram", "liter", "meter"))
        return _both(lambda language: format_compound_unit(amount, unit, denominator_unit=per, locale=language))
    return _both(lambda language: format_unit(amount, unit, "long", locale=language))


@cache
def _currencies() -> list[str]:
    """Currencies named in both languages, without those that the name gives years for."""
    from babel import Locale

    german, english = (Locale(language).currencies for language in LANGUAGES)
    both = sorted(set(german) & set(english))
    return [code for code in both if not any(sign.isdigit() for sign in german[code] + english[code])]


def _money(random: Random) -> Pair:
    from babel.numbers import format_currency

    amount, code = _amount(random), random.choice(_currencies())
    return _both(lambda language: format_currency(amount, code, locale=language, format_type="name"))


def _number_words(random: Random) -> Pair:
    from num2words import num2words

    kind = random.choice(("cardinal", "cardinal", "ordinal", "year"))
    number = random.randrange(1100, 2100) if kind == "year" else random.randrange(1, 10 ** random.randint(2, 6))
    return _both(lambda language: num2words(number, lang=language, to=kind))


_DAYS = {"second": 1 / 86_400, "minute": 1 / 1440, "hour": 1 / 24, "day": 1, "week": 7, "month": 30, "year": 365}


def _distance_in_time(random: Random) -> Pair:
    from babel.dates import format_timedelta

    unit = random.choice(sorted(_DAYS))
    span = datetime.timedelta(days=_DAYS[unit] * random.randrange(2, 90) * random.choice((1, -1)))
    return _both(
        lambda language: format_timedelta(span, granularity=unit, threshold=1e6, add_direction=True, locale=language)
    )


@cache
def _names(what: str) -> list[Pair]:
    from babel import Locale

    german, english = (getattr(Locale(language), what) for language in LANGUAGES)
    return [(german[code], english[code]) for code in sorted(set(german) & set(english))]


def _country(random: Random) -> Pair:
    return random.choice(_names("territories"))


def _language(random: Random) -> Pair:
    return random.choice(_names("languages"))


def _script(random: Random) -> Pair:
    return random.choice(_names("scripts"))


def _regional_language(random: Random) -> Pair:
    """A language as spoken in a country: Deutsch (Österreich) / German (Austria)."""
    language, country = _language(random), _country(random)
    return f"{language[0]} ({country[0]})", f"{language[1]} ({country[1]})"


_OPEN = (_date, _part_of_year, _interval, _time, _moment, _measure, _measure, _money, _number_words, _distance_in_time)
_NAMES = (_country, _language, _script, _regional_language)
