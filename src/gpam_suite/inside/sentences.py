"""The sentences whose weight maps are drawn: our own, since no text of a data set is published with the results."""

from typing import Any

BY_LANGUAGE = {
    "de": "Eine Frau liest ein Buch und ein Kind schläft .",
    "en": "A woman reads a book and a child sleeps .",
}
BY_DATA = {
    "cldr_de_en": {"de": "Montag 3. Mai oder 12 Stunden", "en": "Monday May 3 or 12 hours"},
    "python_docs": {"en": "Return the name of the file as a new list ."},
    "iwslt14_sample_de_en": {language: text.lower() for language, text in BY_LANGUAGE.items()},  # it has no capitals
}
"""Where those are too far from what the model has read."""


def sentence(prepared: Any, language: str | None) -> str | None:
    """The sentence in ``language`` (None: English); None where there is none in that language."""
    language = language or "en"
    return BY_DATA.get(prepared.manifest["name"], BY_LANGUAGE).get(language)
