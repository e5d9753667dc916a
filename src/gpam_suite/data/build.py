"""Raw text to text/, bpe/ and bin/ in a folder, stage by stage, with the counts and checksums of what was written."""

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.data.binarise import BIN, DICTIONARY, IDX, binarise, build_dictionary
from gpam_suite.data.kinds.sources import Raw
from gpam_suite.data.options import SPLITS, sides
from gpam_suite.data.prepared import DOCUMENTS, written
from gpam_suite.data.store.stages import Piece, Stage, Stages, place
from gpam_suite.data.text.counting import count, load_counts
from gpam_suite.data.text.lines import file_name
from gpam_suite.data.text.rows import HELD, KEPT, Clean, Rule, select
from gpam_suite.data.text.segmentation import BPE_FILES, learn, segment, tokenise

Key = tuple[str, str | None]  # split, language or None
Side = dict[
    str, Piece
]  # the texts of one side of a split, line by line the same sentences: source, text, tokens, pieces
_VERSION = 1


def build(
    dataset: Mapping[str, Any], options: Mapping[str, Any], raw: Raw, stages: Stages, folder: Path
) -> dict[str, Any]:
    """Write text/, bpe/ and bin/ into ``folder``; returns their part of the manifest."""
    languages = sides(dataset)
    clean = _rule(options)
    dropped = dict.fromkeys(SPLITS, 0)
    texts = {
        split: _joined(dataset, options, raw, split, stages, dropped)
        for split in SPLITS
        if (split, languages[0]) in raw.parts
    }
    hold_out = dataset.get("hold_out")
    final = not clean and not hold_out  # nothing is taken out later
    if final:
        _check_expected(dataset, texts, stages)
    for split, own in texts.items():
        for language, side in own.items():
            name = file_name(split, language)
            side["tokens"] = tokenise(stages, side.pop("source"), options, language or dataset.get("language"), name)
    if hold_out or (clean and options["clean"]["of"] == "tokens"):
        rule = Rule(clean=clean if clean and options["clean"]["of"] == "tokens" else None, hold_out=hold_out)
        _take_out(texts, "train", "tokens", rule, stages, dropped)

    model = _learn(options, [side["tokens"] for side in texts["train"].values()], stages)
    for split, own in texts.items():
        for language, side in own.items():
            side["pieces"] = segment(stages, side["tokens"], options["bpe"], model, file_name(split, language))
    if clean and options["clean"]["of"] == "pieces":
        for split in ("train", "valid") if hold_out else ("train",):
            _take_out(texts, split, "pieces", Rule(clean=clean), stages, dropped)
    if not final:
        _check_expected(dataset, texts, stages)

    dictionaries = _dictionaries(options, texts["train"], stages)
    splits = {}
    for split in SPLITS:
        counts = {}
        for role, (language, side) in zip(("source", "target"), texts[split].items(), strict=False):
            counts[role] = _counts(side, file_name(split, language), stages)
            data = binarise(stages, side["pieces"], dictionaries[language], file_name(split, language))
            counts[role] |= data.facts
            _place(folder, split, language, languages, side, data)
        lines = count(stages, texts[split][languages[0]]["text"], split, each_word=False).facts["lines"]
        splits[split] = {"lines": lines}
        splits[split] |= {"dropped": dropped[split], **counts} if len(languages) == 2 else counts["source"]
    if model is not None:
        place(model, folder / "bpe" / BPE_FILES[options["bpe"]])
    for language, dictionary in dictionaries.items():
        name = "dict.txt" if language is None else f"dict.{language}.txt"
        place(dictionary.piece(DICTIONARY), folder / "bin" / name)
    documents = {split: raw.documents.get(split, [0]) for split in SPLITS}
    (folder / DOCUMENTS).write_text(json.dumps(documents) + "\n", encoding="utf-8")
    sizes = [dictionaries[language].facts["size"] for language in languages]
    return {
        "splits": splits,
        "dictionary": dict(zip(("source", "target"), sizes, strict=True)) if len(sizes) == 2 else sizes[0],
        **written(folder),
    }


def _rule(options: Mapping[str, Any]) -> Clean | None:
    clean = options.get("clean")
    return Clean(clean["least"], clean["most"], clean["ratio"]) if clean else None


def _joined(
    dataset: Mapping[str, Any],
    options: Mapping[str, Any],
    raw: Raw,
    split: str,
    stages: Stages,
    dropped: dict[str, int],
) -> dict[str | None, Side]:
    """The source and text of each side of a split, its parts behind one another; blank pairs dropped.

    Where training pairs are cleaned later, that drops the blank ones: they count where every n-th is held out.
    """
    languages = sides(dataset)
    parts = {language: raw.parts[split, language] for language in languages}
    if len(languages) == 1:
        (part,) = parts[None]
        return {None: {"source": part.source, "text": part.text}}
    left, right = (sum(part.lines for part in parts[language]) for language in languages)
    if left != right:
        raise UsageError(
            f"parallel text of different length: {split}.{languages[0]} has {left} lines and {split}.{languages[1]} "
            f"{right}; line n of one must be the translation of line n of the other"
        )
    texts = {f"source.{language}": [part.source for part in parts[language]] for language in languages}
    meant = {f"text.{language}": [part.text for part in parts[language]] for language in languages}
    same = list(texts.values()) == list(meant.values())
    rule = Rule(blank=not (split == "train" and options.get("clean")))
    stage = select(stages, texts if same else texts | meant, list(texts), rule, f"join {split}")
    dropped[split] += stage.facts["dropped"]
    if not stage.facts[KEPT]:
        raise UsageError(f"the {split} text ({file_name(split, languages[0])}) has no usable line: nothing to prepare")
    kept = {name: stage.piece(f"{KEPT}.{name}") for name in (texts if same else texts | meant)}
    return {
        language: {"source": kept[f"source.{language}"], "text": kept[f"{'source' if same else 'text'}.{language}"]}
        for language in languages
    }


def _take_out(
    texts: dict[str, dict[str | None, Side]],
    split: str,
    judged: str,
    rule: Rule,
    stages: Stages,
    dropped: dict[str, int],
) -> None:
    """Apply ``rule`` to the pairs of ``split`` in place, judged by their ``tokens`` or ``pieces``; what is held out
    becomes the validation set."""
    columns = {f"{kind}.{language}": [piece] for language, side in texts[split].items() for kind, piece in side.items()}
    stage = select(stages, columns, [f"{judged}.{language}" for language in texts[split]], rule, f"clean {split}")
    dropped[split] += stage.facts["dropped"]
    parts = {KEPT: split} | ({HELD: "valid"} if rule.hold_out else {})
    kinds = {language: list(side) for language, side in texts[split].items()}
    for part, of in parts.items():
        if not stage.facts[part]:
            raise UsageError(f"no pair is left for {of}: preprocessing.clean and dataset.hold_out keep none")
        texts[of] = {
            language: {kind: stage.piece(f"{part}.{kind}.{language}") for kind in names}
            for language, names in kinds.items()
        }


def _check_expected(dataset: Mapping[str, Any], texts: dict[str, dict[str | None, Side]], stages: Stages) -> None:
    """Compare the raw text with the facts known of the data set (``expect: {train: {lines, tokens, types, unk}}``)."""
    for split, facts in (dataset.get("expect") or {}).items():
        for language, side in texts[split].items():
            name = file_name(split, language)
            found = count(stages, side["text"], name, each_word="types" in facts).facts
            for fact, wanted in facts.items():
                got = found["words" if fact == "tokens" else fact]
                if got != wanted:
                    raise UsageError(
                        f"{dataset['name']}: {name} has {got:,} {fact}, wanted {wanted:,}: not the published text"
                    )


def _learn(options: Mapping[str, Any], texts: list[Piece], stages: Stages) -> Piece | None:
    """The model of the segmentation, learnt on the tokens of the training text, by a stage."""
    kind, size = options["bpe"], options["bpe_size"]
    if kind not in BPE_FILES:
        return None
    package = kind.replace("_", "-")

    def work(folder: Path) -> None:
        counted = [count(stages, text, "train", each_word=True) for text in texts] if kind == "subword_nmt" else []
        learn(kind, size, [text.path for text in texts], load_counts(counted), folder)

    made_from = {"texts": texts, "kind": kind, "size": size, "version": importlib.metadata.version(package)}
    return stages.run("learn", _VERSION, made_from, work).piece(BPE_FILES[kind])


def _dictionaries(options: Mapping[str, Any], train: dict[str | None, Side], stages: Stages) -> dict[str | None, Stage]:
    """One dictionary a language, from the training text; the same one for all with ``joined_dictionary``."""
    counted = {language: count(stages, side["pieces"], "train", each_word=True) for language, side in train.items()}

    def made(of: list[Stage]) -> Stage:
        def work(folder: Path) -> dict[str, int]:
            dictionary = build_dictionary(load_counts(of), options["min_count"])
            dictionary.save(str(folder / DICTIONARY))
            return {"size": len(dictionary)}

        made_from = {"counts": [stage.piece("counts.txt") for stage in of], "min_count": options["min_count"]}
        made_from["fairseq"] = importlib.metadata.version("fairseq")
        return stages.run("dictionary", _VERSION, made_from, work)

    if options["joined_dictionary"]:
        return dict.fromkeys(train, made(list(counted.values())))
    return {language: made([stage]) for language, stage in counted.items()}


def _counts(side: Side, name: str, stages: Stages) -> dict[str, int]:
    tokens = count(stages, side["tokens"], name, each_word=True).facts
    text = count(stages, side["text"], name, each_word=False).facts
    return {"words": tokens["words"], "types": tokens["types"], "characters": text["characters"]}


def _place(
    folder: Path, split: str, language: str | None, languages: tuple[str | None, ...], side: Side, data: Stage
) -> None:
    name = file_name(split, language)
    stem = split if language is None else f"{split}.{'-'.join(languages)}.{language}"
    for part in ("text", "bpe", "bin"):
        (folder / part).mkdir(exist_ok=True)
    place(side["text"], folder / "text" / name)
    place(side["pieces"], folder / "bpe" / name)
    place(data.piece(BIN), folder / "bin" / f"{stem}.bin")
    place(data.piece(IDX), folder / "bin" / f"{stem}.idx")
