"""The ``preprocessing`` node: known keys, allowed values, defaults; and what both nodes of a data set are read with."""

from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from gpam.errors import UsageError, did_you_mean
from gpam_suite.common.options import finite, mapping, one_of, whole_number, yes_or_no
from gpam_suite.common.tasks import TASKS

SPLITS = ("train", "valid", "test")


def plain(node: Any, what: str) -> dict[str, Any]:
    """``node`` (an omegaconf node or a mapping) as nested plain dictionaries and lists, interpolations resolved."""
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=True)  # a value still to be given comes as "???"
    return {key: None if value == "???" else value for key, value in mapping(node, what).items()}


def refuse_unknown(node: Mapping[str, Any], known: set[str], what: str) -> None:
    """Raise UsageError for a key of ``node`` that is not ``known``."""
    for key in node:
        if key not in known:
            wanted = ", ".join(sorted(known))
            raise UsageError(f"unknown option {what}.{key}: wanted one of {wanted}{did_you_mean(key, known)}")


_DEFAULTS = {
    "tokenizer": "none",
    "lowercase": False,
    "bpe": "none",
    "bpe_size": 0,
    "joined_dictionary": False,
    "min_count": 0,
}
# options that came later: where they are not used, an old preparation does not look different
_RARE = {"normalise": False, "hyphens": False, "last_stop": False, "clean": None}


def check_preprocessing(node: Any) -> dict[str, Any]:
    """The ``preprocessing`` node, checked and completed with defaults.

    An option without effect (``bpe_size`` with ``bpe: none`` or ``characters``) is set to its default, so that it does
    not make two equal preparations look different.
    """
    node = plain(node, "preprocessing")
    known = _DEFAULTS | _RARE
    refuse_unknown(node, set(known), "preprocessing")
    options = known | {key: value for key, value in node.items() if value is not None}
    one_of(options["tokenizer"], ("none", "moses"), "preprocessing.tokenizer")
    one_of(options["bpe"], ("none", "subword_nmt", "sentencepiece", "characters"), "preprocessing.bpe")
    for key, default in known.items():
        if isinstance(default, bool):
            yes_or_no(options[key], f"preprocessing.{key}")
        if key in _RARE and options[key] is True and options["tokenizer"] != "moses":
            raise UsageError(f"preprocessing.{key} is part of Moses: wanted preprocessing.tokenizer=moses with it")
    whole_number(options["min_count"], 0, "preprocessing.min_count")
    if options["bpe"] in ("subword_nmt", "sentencepiece"):
        whole_number(options["bpe_size"], 1, f"preprocessing.bpe_size (bpe is {options['bpe']})")
    else:
        options["bpe_size"] = 0
    if options["clean"] is not None:
        _check_clean(options["clean"])
    return {key: value for key, value in options.items() if key not in _RARE or value != _RARE[key]}


def _check_clean(clean: Any) -> None:
    """``clean``: which training pairs stay (:func:`gpam_suite.data.text.rows.clean_keeps`), counted in ``of``."""
    wanted = {"of", "least", "most", "ratio"}
    if not isinstance(clean, Mapping) or set(clean) != wanted:
        raise UsageError(f"preprocessing.clean: got {clean!r}, wanted {', '.join(sorted(wanted))}, or null")
    one_of(clean["of"], ("tokens", "pieces"), "preprocessing.clean.of")
    least = whole_number(clean["least"], 1, "preprocessing.clean.least")
    whole_number(clean["most"], least, "preprocessing.clean.most")
    if finite(clean["ratio"], "preprocessing.clean.ratio") < 1:
        raise UsageError(f"preprocessing.clean.ratio: got {clean['ratio']!r}, wanted a number of at least 1")


def languages_of(dataset: Mapping[str, Any]) -> tuple[str | None, ...]:
    """The languages of a parallel data set, source first; ``(None,)`` for a language model's text."""
    return (dataset["source"], dataset["target"]) if TASKS[dataset["task"]].parallel else (None,)
