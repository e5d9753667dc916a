"""Raw text to text/, bpe/ and bin/ in a folder, stage by stage, with the counts and checksums of what was written."""

import importlib.metadata
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.formatting import plural
from gpam_suite.data.binarise import BIN, DICTIONARY, IDX, binarise, build_dictionary, dictionary_name
from gpam_suite.data.kinds.sources import Raw
from gpam_suite.data.options import SPLITS, languages_of
from gpam_suite.data.prepared import written
from gpam_suite.data.store.stages import Piece, Stage, Stages
from gpam_suite.data.text.counting import COUNTS, count, load_counts
from gpam_suite.data.text.lines import file_name
from gpam_suite.data.text.rows import select
from gpam_suite.data.text.segmentation import BPE_FILES, learn, segment, tokenise

log = logging.getLogger(__name__)
Side = dict[str, Piece]  # source, text, tokens, pieces: the texts of one side of a split, line by line the same


def build(
    dataset: Mapping[str, Any], options: Mapping[str, Any], raw: Raw, stages: Stages, folder: Path
) -> dict[str, Any]:
    """Write text/, bpe/ and bin/ into ``folder``; returns their part of the manifest."""
    texts = _Texts(dataset, options, raw, stages)
    model = texts.segmented()
    if model is not None:
        model.place(folder / "bpe" / BPE_FILES[options["bpe"]])
    dictionaries = _dictionaries(options, texts.splits["train"], stages)
    for language, dictionary in dictionaries.items():
        dictionary.piece(DICTIONARY).place(folder / "bin" / dictionary_name(language))
    languages, splits = languages_of(dataset), {}
    for split in SPLITS:
        counts = {}
        for role, language in zip(("source", "target"), languages, strict=False):
            side, name = texts.splits[split][language], file_name(split, language)
            data = binarise(stages, side["pieces"], dictionaries[language], name)
            tokens = count(stages, side["tokens"], name, each_word=True).facts
            text = count(stages, side["text"], name, each_word=False).facts
            counts[role] = {"words": tokens["words"], "types": tokens["types"], "characters": text["characters"]}
            counts[role] |= data.facts
            stem = split if language is None else f"{split}.{'-'.join(languages)}.{language}"
            side["text"].place(folder / "text" / name)
            side["pieces"].place(folder / "bpe" / name)
            data.piece(BIN).place(folder / "bin" / f"{stem}.bin")
            data.piece(IDX).place(folder / "bin" / f"{stem}.idx")
        splits[split] = {"lines": text["lines"]}
        splits[split] |= {"dropped": texts.dropped[split], **counts} if len(languages) == 2 else counts["source"]
    documents = {split: raw.documents.get(split, [0]) for split in SPLITS}
    sizes = [dictionaries[language].facts["size"] for language in languages]
    return {
        "splits": splits,
        "dictionary": dict(zip(("source", "target"), sizes, strict=True)) if len(sizes) == 2 else sizes[0],
        **written(folder, documents),
    }


class _Texts:
    """The texts of a data set on their way: ``splits`` by language, and how many pairs were ``dropped``."""

    def __init__(self, dataset: Mapping[str, Any], options: Mapping[str, Any], raw: Raw, stages: Stages) -> None:
        self.dataset, self.options, self.raw, self.stages = dataset, options, raw, stages
        self.dropped = dict.fromkeys(SPLITS, 0)
        languages = languages_of(dataset)
        self.splits: dict[str, dict[str | None, Side]] = {}
        for split in SPLITS:
            if (split, languages[0]) in raw.parts:
                self._join(split)

    def segmented(self) -> Piece | None:
        """Tokenise, clean, hold out and segment every text; returns the model of the segmentation."""
        options, hold_out = self.options, self.dataset.get("hold_out")
        clean = dict(options.get("clean") or {})
        counted = clean.pop("of", None)  # tokens or pieces
        if not clean and not hold_out:  # nothing is taken out later
            self._check_expected()
        for split, language, side in self._sides():
            spoken = language or self.dataset.get("language")
            side["tokens"] = tokenise(self.stages, side.pop("source"), options, spoken, file_name(split, language))
        if hold_out or counted == "tokens":
            self._take_out("train", "tokens", clean=clean if counted == "tokens" else None, hold_out=hold_out)
        train = [side["tokens"] for side in self.splits["train"].values()]
        model = learn(self.stages, train, options["bpe"], options["bpe_size"])
        for split, language, side in self._sides():
            side["pieces"] = segment(self.stages, side["tokens"], options["bpe"], model, file_name(split, language))
        if counted == "pieces":
            for split in ("train", "valid") if hold_out else ("train",):
                self._take_out(split, "pieces", clean=clean)
        if clean or hold_out:
            self._check_expected()
        return model

    def _sides(self) -> list[tuple[str, str | None, Side]]:
        return [(split, language, side) for split, own in self.splits.items() for language, side in own.items()]

    def _join(self, split: str) -> None:
        """The source and text of each side of a split, its parts behind one another; blank pairs dropped.

        Where training pairs are cleaned later, that drops the blank ones: they count where every n-th is held out.
        """
        parts = {language: self.raw.parts[split, language] for language in languages_of(self.dataset)}
        joined = {
            language: {"source": [part.source for part in own], "text": [part.text for part in own]}
            for language, own in parts.items()
        }
        if len(joined) == 1:
            self.splits[split] = {None: {kind: pieces[0] for kind, pieces in joined[None].items()}}
            return
        first, second = parts
        for one, other in zip(*parts.values(), strict=True):
            if one.lines != other.lines:
                raise UsageError(
                    f"parallel text of different length: {split}.{first} has {one.lines} lines and {split}.{second} "
                    f"{other.lines}; line n of one must be the translation of line n of the other"
                )
        self._select(split, joined, "source", blank=not (split == "train" and self.options.get("clean")))

    def _take_out(self, split: str, judged: str, **rule: Any) -> None:
        own = self.splits[split]
        texts = {language: {kind: [piece] for kind, piece in side.items()} for language, side in own.items()}
        self._select(split, texts, judged, **rule)

    def _select(self, split: str, texts: Mapping[str, Mapping[str, list[Piece]]], judged: str, **rule: Any) -> None:
        """The pairs of a split that the ``rule`` of :func:`select` keeps; what it holds out is the validation set.

        Judged are their ``source``, ``tokens`` or ``pieces``.
        """
        rows = {f"{kind}.{language}": own for language, side in texts.items() for kind, own in side.items()}
        names = [f"{judged}.{language}" for language in texts]
        facts, found = select(self.stages, rows, names, f"select {split}", **rule)
        self.dropped[split] += facts["dropped"]
        if facts["dropped"] and rule.get("blank") and split != "train":
            log.warning("%s: %s with a blank side left out", split, plural(facts["dropped"], "pair"))
        for part, of in zip(found, (split, "valid"), strict=False):
            if not facts[part]:
                raise UsageError(
                    f"the {of} text has no usable line: wanted pairs without a blank side that preprocessing.clean and "
                    "dataset.hold_out leave there"
                )
            self.splits[of] = {
                language: {kind: found[part][f"{kind}.{language}"] for kind in side} for language, side in texts.items()
            }

    def _check_expected(self) -> None:
        """Compare the text with the facts known of the data set (``expect: {train: {lines, tokens, types, unk}}``)."""
        for split, facts in (self.dataset.get("expect") or {}).items():
            for language, side in self.splits[split].items():
                name, of = file_name(split, language), self.dataset["name"]
                found = count(self.stages, side["text"], name, each_word="types" in facts).facts
                for fact, wanted in facts.items():
                    got = found["words" if fact == "tokens" else fact]
                    if got != wanted:
                        raise UsageError(
                            f"{of}: {name} has {got:,} {fact}, wanted {wanted:,}: not the published text (if it was "
                            "downloaded, remove it from <paths.data>/downloads)"
                        )


def _dictionaries(options: Mapping[str, Any], train: dict[str | None, Side], stages: Stages) -> dict[str | None, Stage]:
    """One dictionary a language, from the training text; the same one for all with ``joined_dictionary``."""
    counted = {language: count(stages, side["pieces"], "train", each_word=True) for language, side in train.items()}

    def made(of: list[Stage]) -> Stage:
        def work(folder: Path) -> dict[str, int]:
            dictionary = build_dictionary(load_counts(of), options["min_count"])
            dictionary.save(str(folder / DICTIONARY))
            return {"size": len(dictionary)}

        made_from = {"counts": [stage.piece(COUNTS) for stage in of], "min_count": options["min_count"]}
        made_from["fairseq"] = importlib.metadata.version("fairseq")
        return stages.run("dictionary", made_from, work)

    if options["joined_dictionary"]:
        return dict.fromkeys(train, made(list(counted.values())))
    return {language: made([stage]) for language, stage in counted.items()}
