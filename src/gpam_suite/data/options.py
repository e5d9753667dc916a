"""The ``dataset`` and ``preprocessing`` nodes: known keys, allowed values, defaults."""

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from gpam.errors import UsageError, did_you_mean
from gpam_suite.common.tasks import LM, NMT, RECALL, TASKS

TOKENIZERS = ("none", "moses")
SEGMENTATIONS = ("none", "subword_nmt", "sentencepiece", "characters")
SPLITS = ("train", "valid", "test")
FACTS = ("lines", "tokens", "types", "unk")

_COMMON = {"name", "label", "task", "kind", "licence", "citation", "expect"}
_LANGUAGES = {"source", "target"}
_SEQUENCES = {"sequences", "valid_sequences", "test_sequences", "seed"}
# The keys of each kind of data set, beside the common ones; all of them are required.
_KINDS = {
    "files": {"files", "archives", "documents"},
    "corpora": {"archives", "corpora", "hold_out"},
    "pairs": {"archives", "pairs", "split"},
    "local": {"folder"},
    "python_docs": {"words"},
    "cldr_de_en": {"pairs", "valid_pairs", "test_pairs", "items", "seed"},
    "characters": {"file", "split", "types", "documents"},
    "documents": {"sets", "budget"},
    "copy": {"length", "values", *_SEQUENCES},
    "selective_recall": {"length", "values", "keys", "pairs", *_SEQUENCES},
}
_TASK_OF = {"characters": LM.name, "copy": RECALL.name, "selective_recall": RECALL.name}
_TASK_OF |= dict.fromkeys(("corpora", "documents", "pairs"), NMT.name)
# Kinds whose symbols no tokeniser or segmentation may touch, and the segmentation that says so.
_SYMBOLS = {"characters": "characters", "copy": "none", "selective_recall": "none"}
_NAME, _LANGUAGE = re.compile(r"\w[\w.+-]{0,99}"), re.compile(r"[A-Za-z]\w{0,19}(?:-\w{1,19})*")
_OPTIONAL = {"label", "licence", "citation", "expect", "documents", "language", "archives", "hold_out"}


def plain(node: Any, what: str) -> dict[str, Any]:
    """``node`` (an omegaconf node or a mapping) as nested plain dictionaries and lists, interpolations resolved."""
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=True)  # a value still to be given comes as "???"
    if not isinstance(node, Mapping):
        raise UsageError(f"{what}: got {node!r}, wanted a mapping of options")
    return {key: None if value == "???" else value for key, value in node.items()}


def _refuse_unknown(node: Mapping[str, Any], known: set[str], what: str) -> None:
    for key in node:
        if key not in known:
            wanted = ", ".join(sorted(known))
            raise UsageError(f"unknown option {what}.{key}: wanted one of {wanted}{did_you_mean(key, known)}")


def _one_of(value: Any, choices: tuple[str, ...], what: str) -> str:
    if value not in choices:
        raise UsageError(f"{what}: got {value!r}, wanted one of {', '.join(choices)}{did_you_mean(value, choices)}")
    return value


def _boolean(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{what}: got {value!r}, wanted true or false")
    return value


def whole_number(value: Any, least: int, what: str) -> int:
    """``value`` if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what}: got {value!r}, wanted a whole number of at least {least}")
    return value


def check_preprocessing(node: Any) -> dict[str, Any]:
    """The ``preprocessing`` node, checked and completed with defaults.

    An option without effect (``bpe_size`` with ``bpe: none`` or ``characters``) is set to its default, so that it does
    not make two equal preparations look different.
    """
    node = plain(node, "preprocessing")
    rare = {"normalise": False, "hyphens": False, "last_stop": False, "clean": None}
    defaults = {
        "tokenizer": "none",
        "lowercase": False,
        "bpe": "none",
        "bpe_size": 0,
        "joined_dictionary": False,
        "min_count": 0,
    }
    _refuse_unknown(node, {*defaults, *rare}, "preprocessing")
    options = defaults | rare | {key: value for key, value in node.items() if value is not None}
    _one_of(options["tokenizer"], TOKENIZERS, "preprocessing.tokenizer")
    _one_of(options["bpe"], SEGMENTATIONS, "preprocessing.bpe")
    _boolean(options["lowercase"], "preprocessing.lowercase")
    _boolean(options["joined_dictionary"], "preprocessing.joined_dictionary")
    whole_number(options["min_count"], 0, "preprocessing.min_count")
    if options["bpe"] in ("subword_nmt", "sentencepiece"):
        whole_number(options["bpe_size"], 1, f"preprocessing.bpe_size (bpe is {options['bpe']})")
    else:
        options["bpe_size"] = 0
    for key in ("normalise", "hyphens", "last_stop"):
        if _boolean(options[key], f"preprocessing.{key}") and options["tokenizer"] != "moses":
            raise UsageError(f"preprocessing.{key} is part of Moses: wanted preprocessing.tokenizer=moses with it")
    _check_clean(options["clean"])
    # an option that is new and not used does not make an old preparation look different
    return {key: value for key, value in options.items() if key not in rare or value != rare[key]}


def _check_clean(clean: Any) -> None:
    """``clean``: which training pairs stay (:class:`gpam_suite.data.text.rows.Clean`), counted in ``of``."""
    if clean is None:
        return
    wanted = {"of", "least", "most", "ratio"}
    if not isinstance(clean, Mapping) or set(clean) != wanted:
        raise UsageError(f"preprocessing.clean: got {clean!r}, wanted {', '.join(sorted(wanted))}, or null")
    _one_of(clean["of"], ("tokens", "pieces"), "preprocessing.clean.of")
    whole_number(
        clean["most"], whole_number(clean["least"], 1, "preprocessing.clean.least"), "preprocessing.clean.most"
    )
    if isinstance(clean["ratio"], bool) or not isinstance(clean["ratio"], int | float) or clean["ratio"] < 1:
        raise UsageError(f"preprocessing.clean.ratio: got {clean['ratio']!r}, wanted a number of at least 1")


def check_dataset(node: Any) -> dict[str, Any]:
    """The ``dataset`` node, checked: known keys only, none missing, languages for ``task: nmt``."""
    node = plain(node, "dataset")
    for key in ("name", "task", "kind"):
        if not node.get(key):
            raise UsageError(f"dataset.{key} is missing: wanted a node like those in configs/dataset")
    _one_of(node["task"], tuple(TASKS), "dataset.task")
    kind = _one_of(node["kind"], tuple(_KINDS), "dataset.kind")
    _check_task(node["task"], kind)
    name = node["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"dataset.name: got {name!r}, wanted a word that can name a folder (letters, digits, '_', '-', '.', '+')"
        )
    common = _COMMON - {"expect"} if kind == "characters" else _COMMON  # its split and types are such facts
    known = common | _KINDS[kind] | (_LANGUAGES if TASKS[node["task"]].parallel else {"language"})
    _refuse_unknown(node, known, "dataset")
    for key in sorted(known - _OPTIONAL):
        if node.get(key) is None:
            hint = f"; give it as dataset.{key}=..." if key in ("folder", *_LANGUAGES) else ""
            raise UsageError(f"dataset.{key} is missing (dataset {name}, kind {kind}){hint}")
    if node.get("documents") is not None:
        _one_of(
            node["documents"], ("paragraphs", "pages") if kind == "characters" else ("wikitext",), "dataset.documents"
        )
    for split, facts in plain(node.get("expect") or {}, "dataset.expect").items():
        _one_of(split, SPLITS, "dataset.expect")
        for fact in plain(facts, f"dataset.expect.{split}"):
            _one_of(fact, FACTS, f"dataset.expect.{split}")
    for key in ("source", "target", "language"):
        value = node.get(key)
        if key in known and value is not None and not (isinstance(value, str) and _LANGUAGE.fullmatch(value)):
            raise UsageError(f"dataset.{key}: got {value!r}, wanted the code of a language, such as de or pt-BR")
    if TASKS[node["task"]].parallel and node["source"] == node["target"]:
        raise UsageError(f"dataset.source and dataset.target are both {node['source']!r}: wanted two languages")
    return node


def _check_task(task: str, kind: str) -> None:
    wanted = _TASK_OF.get(kind)
    if task != wanted and (wanted or task == RECALL.name):
        kinds = [name for name, of in _TASK_OF.items() if of == task]
        meant = f"wanted dataset.task={wanted}" if wanted else f"wanted a kind with answers: {', '.join(kinds)}"
        raise UsageError(f"dataset.task={task} does not go with dataset.kind={kind}: {meant}")


def check_fit(dataset: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse a ``preprocessing`` that would change symbols which the kind of data set fixes."""
    if (segmentation := _SYMBOLS.get(dataset["kind"])) is None:
        return
    wanted = {"tokenizer": "none", "lowercase": False, "bpe": segmentation, "min_count": 0}
    for key, value in wanted.items():
        if options[key] != value:
            raise UsageError(
                f"preprocessing.{key}={options[key]} does not go with data set {dataset['name']}, whose symbols are "
                f"fixed: wanted {str(value).lower()} (recipe={dataset['name']} has it)"
            )


def sides(dataset: Mapping[str, Any]) -> tuple[str | None, ...]:
    """The languages of a parallel data set, source first; ``(None,)`` for a language model's text."""
    return (dataset["source"], dataset["target"]) if TASKS[dataset["task"]].parallel else (None,)
