"""The ``dataset`` node: known keys, allowed values, and what goes with what."""

import re
from collections.abc import Mapping
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.options import mapping, one_of, whole_number
from gpam_suite.common.tasks import RECALL, TASKS
from gpam_suite.data.kinds.sources import KINDS
from gpam_suite.data.options import SPLITS, plain, refuse_unknown

_COMMON = {"name", "label", "task", "kind", "licence", "citation", "expect"}
_LANGUAGES = {"source", "target"}
_NAME, _LANGUAGE = re.compile(r"\w[\w.+-]{0,99}"), re.compile(r"[A-Za-z]\w{0,19}(?:-\w{1,19})*")
_OPTIONAL = {"label", "licence", "citation", "expect", "documents", "language", "archives", "hold_out"}


def check_dataset(node: Any) -> dict[str, Any]:
    """The ``dataset`` node, checked: known keys only, none missing, languages for ``task: nmt``."""
    node = plain(node, "dataset")
    for key in ("name", "task", "kind"):
        if not node.get(key):
            raise UsageError(f"dataset.{key} is missing: wanted a node like those in configs/dataset")
    one_of(node["task"], tuple(TASKS), "dataset.task")
    kind = one_of(node["kind"], tuple(KINDS), "dataset.kind")
    _check_task(node["task"], kind)
    name = node["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"dataset.name: got {name!r}, wanted a word that can name a folder (letters, digits, '_', '-', '.', '+')"
        )
    common = _COMMON - {"expect"} if kind == "characters" else _COMMON  # its split and types are such facts
    known = common | set(KINDS[kind].keys) | (_LANGUAGES if TASKS[node["task"]].parallel else {"language"})
    refuse_unknown(node, known, "dataset")
    for key in sorted(known - _OPTIONAL):
        if node.get(key) is None:
            hint = f"; give it as dataset.{key}=..." if key in ("folder", *_LANGUAGES) else ""
            raise UsageError(f"dataset.{key} is missing (dataset {name}, kind {kind}){hint}")
    if node.get("documents") is not None:
        if TASKS[node["task"]].parallel:
            raise UsageError(
                f"dataset.documents={node['documents']} does not go with dataset.task={node['task']}: only a language "
                "model's text has such documents; leave it out"
            )
        one_of(
            node["documents"], ("paragraphs", "pages") if kind == "characters" else ("wikitext",), "dataset.documents"
        )
    for key in ("archives", "sets"):
        if node.get(key) is not None:
            mapping(node[key], f"dataset.{key}")
    for split, facts in plain(node.get("expect") or {}, "dataset.expect").items():
        one_of(split, SPLITS, "dataset.expect")
        for fact, wanted in plain(facts, f"dataset.expect.{split}").items():
            one_of(fact, ("lines", "tokens", "types", "unk"), f"dataset.expect.{split}")
            whole_number(wanted, 0, f"dataset.expect.{split}.{fact}")
    for key in ("source", "target", "language"):
        value = node.get(key)
        if key in known and value is not None and not (isinstance(value, str) and _LANGUAGE.fullmatch(value)):
            raise UsageError(f"dataset.{key}: got {value!r}, wanted the code of a language, such as de or pt-BR")
    if TASKS[node["task"]].parallel and node["source"] == node["target"]:
        raise UsageError(f"dataset.source and dataset.target are both {node['source']!r}: wanted two languages")
    return node


def _check_task(task: str, kind: str) -> None:
    wanted = KINDS[kind].task
    if task != wanted and (wanted or task == RECALL.name):
        kinds = [name for name, of in KINDS.items() if of.task == task]
        meant = f"wanted dataset.task={wanted}" if wanted else f"wanted a kind with answers: {', '.join(kinds)}"
        raise UsageError(f"dataset.task={task} does not go with dataset.kind={kind}: {meant}")


def check_fit(dataset: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse a ``preprocessing`` that is of pairs where there are none, or would change symbols which the kind of data
    set fixes."""
    if "clean" in options and not TASKS[dataset["task"]].parallel:
        raise UsageError(f"preprocessing.clean is of pairs, which data set {dataset['name']} has not: leave it out")
    if (segmentation := KINDS[dataset["kind"]].segmentation) is None:
        return
    wanted = {"tokenizer": "none", "lowercase": False, "bpe": segmentation, "min_count": 0}
    for key, value in wanted.items():
        if options[key] != value:
            raise UsageError(
                f"preprocessing.{key}={options[key]} does not go with data set {dataset['name']}, whose symbols are "
                f"fixed: wanted {str(value).lower()} (recipe={dataset['name']} has it)"
            )
