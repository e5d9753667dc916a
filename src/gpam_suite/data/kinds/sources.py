"""Raw text of a data set, whatever its kind: public files, the user's own files, generated text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.tasks import LM, NMT, RECALL
from gpam_suite.data.kinds import characters, cldr, corpora, documents, pairs, python_docs, recall
from gpam_suite.data.options import SPLITS, sides
from gpam_suite.data.progress import progress
from gpam_suite.data.store.download import checksums, mirror_folder, obtain, obtain_file
from gpam_suite.data.store.stages import Piece, Stages
from gpam_suite.data.store.unpack import open_member
from gpam_suite.data.text.lines import (
    file_name,
    open_text,
    read_lines,
    sha256,
    stream_lines,
    wikitext_documents,
    write_lines,
)

_TEXT = "text.txt"
_VERSION = 1
Lines = dict[tuple[str, str | None], list[str]]  # (split, language or None) -> lines


@dataclass
class Text:
    """Raw lines of every split and side, and the first line of each document where known."""

    lines: Lines
    documents: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Text of one side: what is tokenised, and what it means (mostly the same), line by line."""

    source: Piece
    text: Piece
    lines: int


@dataclass
class Raw:
    """The raw text of every split and side in one or more parts, and the first line of each document where known."""

    parts: dict[tuple[str, str | None], list[Part]]
    documents: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class Source:
    """A data set before it is read: what its text depends on, and one of three ways to get the text."""

    fingerprint: dict[str, str]  # file or generator -> checksum or version; part of the preparation's hash
    origin: dict[str, str]  # file -> where it came from; only for the manifest
    read: Callable[[], Text] | None = None  # text that fits into memory
    build: Callable[[Path], dict[str, Any]] | None = None  # writes text/ and bin/ itself
    stream: Callable[[Stages], Raw] | None = None  # text of any size

    def raw(self, stages: Stages, dataset: Mapping[str, Any]) -> Raw:
        """The text, read by stages."""
        return self.stream(stages) if self.stream else _in_memory(self, stages, dataset)


def open_source(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    """The source of a checked ``dataset`` node."""
    return KINDS[dataset["kind"]].open(dataset, paths)


def _python_docs(dataset: Mapping[str, Any], _: Mapping[str, Any]) -> Source:
    def read() -> Text:
        lines, documents = python_docs.generate(dataset["words"])
        return Text({(split, None): text for split, text in lines.items()}, documents)

    return Source(python_docs.fingerprint(), {}, read)


def _cldr(dataset: Mapping[str, Any], _: Mapping[str, Any]) -> Source:
    return Source(cldr.fingerprint(), {}, lambda: Text(cldr.generate(dataset)))


def _recall(dataset: Mapping[str, Any], _: Mapping[str, Any]) -> Source:
    return Source(recall.fingerprint(), {}, lambda: Text(recall.generate(dataset)))


def _in_memory(source: Source, stages: Stages, dataset: Mapping[str, Any]) -> Raw:
    keys = [(split, language) for split in SPLITS for language in sides(dataset)]

    def work(folder: Path) -> dict[str, Any]:
        text = source.read()
        for key in keys:
            write_lines(folder / file_name(*key), text.lines[key])
        lines = {file_name(*key): len(text.lines[key]) for key in keys}
        return {"lines": lines, "documents": text.documents}

    stage = stages.run("generate", _VERSION, {"dataset": dataset, "source": source.fingerprint}, work)
    pieces = {key: stage.piece(file_name(*key)) for key in keys}
    lines = stage.facts["lines"]
    return Raw(
        {key: [Part(piece, piece, lines[file_name(*key)])] for key, piece in pieces.items()}, stage.facts["documents"]
    )


def _whole_text(stages: Stages, path: Path, digest: str, name: str | Path) -> Part:
    """The lines of a text file, by a stage."""

    def work(folder: Path) -> dict[str, int]:
        number = 0
        with (
            open_text(path) as file,
            progress(f"read {name}", None) as bar,
            (folder / _TEXT).open("w", encoding="utf-8", newline="\n") as text,
        ):
            for line in stream_lines(file, name):
                text.write(f"{line}\n")
                bar.update(len(line) + 1)
                number += 1
        return {"lines": number}

    stage = stages.run("read", _VERSION, {"text": digest}, work)
    return Part(stage.piece(_TEXT), stage.piece(_TEXT), stage.facts["lines"])


def _documents_of(stages: Stages, text: Piece) -> list[int]:
    def work(_: Path) -> dict[str, list[int]]:
        with text.path.open(encoding="utf-8", newline="\n") as lines:
            return {"starts": wikitext_documents(lines)}

    return stages.run("documents", _VERSION, {"text": text}, work).facts["starts"]


def _public_files(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    """Texts by themselves, or where the mirror does not have one and the node names an archive, out of that."""
    mirror = mirror_folder(paths)
    nodes, found, fingerprint, origin = {}, {}, {}, {}
    archives: dict[str, corpora.Archive] = {}
    for key in ((split, language) for split in SPLITS for language in sides(dataset)):
        nodes[key] = file = _file_node(dataset, *key)
        if file.get("archive") and not (mirror and (mirror / file["mirror"]).is_file()):
            if file["archive"] not in archives:
                archives |= corpora.archives(dataset, {file["archive"]}, paths)
            _, digest, came_from = archives[file["archive"]]
            name = f"{file['archive']}:{file['member']}"
        else:
            found[key], digest, came_from = obtain_file(file, dataset["name"], paths)
            name = file["mirror"]
        fingerprint[name], origin[name] = digest, came_from

    def stream(stages: Stages) -> Raw:
        parts = {}
        for key, file in nodes.items():
            if key in found:
                parts[key] = [_whole_text(stages, found[key], fingerprint[file["mirror"]], file["mirror"])]
            else:
                parts[key] = [_extracted(stages, archives[file["archive"]], file["member"], "plain", None)]
        raw = Raw(parts)
        if dataset.get("documents") == "wikitext":
            raw.documents = {split: _documents_of(stages, parts[split, None][0].text) for split in SPLITS}
        return raw

    return Source(fingerprint, origin, stream=stream)


def _extracted(stages: Stages, archive: corpora.Archive, member: str, form: str, lines: int | None) -> Part:
    stage = corpora.extract(stages, archive, member, form, lines)
    return Part(stage.piece(corpora.SOURCE), stage.piece(corpora.TEXT), stage.facts["lines"])


def _corpora(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    entries = list(corpora.entries(dataset))
    archives = corpora.archives(dataset, {node["archive"] for *_, node in entries}, paths)

    def stream(stages: Stages) -> Raw:
        parts: dict[tuple[str, str | None], list[Part]] = {}
        for split, _, node in entries:
            for language in sides(dataset):
                archive, form = archives[node["archive"]], node["format"]
                part = _extracted(stages, archive, node[language], form, node.get("lines"))
                parts.setdefault((split, language), []).append(part)
        return Raw(parts)

    return Source(
        {name: digest for name, (_, digest, _) in archives.items()},
        {name: came_from for name, (_, _, came_from) in archives.items()},
        stream=stream,
    )


def _pairs(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    """One file of pairs out of an archive, or where the mirror has its pairs as texts and not the archive, those."""
    pairs.check(dataset)
    node, both, mirror = dataset["pairs"], pairs.languages(dataset), mirror_folder(paths)
    texts = node.get("texts") or {}
    archive = (dataset.get("archives") or {}).get(node["archive"]) or {}
    if mirror and texts and not (mirror / archive.get("mirror", ".")).is_file() and _all_there(mirror, texts):
        sides_of = [[line for name in texts[language] for line in read_lines(mirror / name)] for language in both]
        if len(sides_of[0]) != len(sides_of[1]):
            raise UsageError(f"dataset.pairs.texts: {' and '.join(map(str, texts.values()))} differ in their lines")
        found = list(zip(*sides_of, strict=True))
        came_from = f"mirror:{', '.join(name for language in both for name in texts[language])}"
    else:
        path, _, came_from = corpora.archives(dataset, {node["archive"]}, paths)[node["archive"]]
        with open_member(path, node["member"]) as file:
            found = pairs.read_table(stream_lines(file, node["member"]), node["columns"], both, node["member"])
    found = pairs.different(found)
    digest = pairs.verify(found, node.get("checksums") or [], f"{dataset['name']}, from {came_from}")
    return Source({"pairs": digest}, {"pairs": came_from}, lambda: Text(pairs.split(found, dataset)))


def _all_there(mirror: Path, texts: Mapping[str, list[str]]) -> bool:
    return all((mirror / name).is_file() for names in texts.values() for name in names)


def _file_node(dataset: Mapping[str, Any], split: str, language: str | None) -> Mapping[str, Any]:
    """The entry of ``dataset.files`` for one split and side."""
    key = f"dataset.files.{split}" if language is None else f"dataset.files.{split}.{language}"
    node: Any = dataset["files"]
    for part in (split,) if language is None else (split, language):
        node = node.get(part) if isinstance(node, Mapping) else None
    return _checked_file(node, key)


def _checked_file(node: Any, key: str) -> Mapping[str, Any]:
    """``node`` if it describes a public file."""
    if not isinstance(node, Mapping) or not {"mirror", "urls"} <= set(node):
        raise UsageError(f"{key}: got {node!r}, wanted mirror (a path), urls (a list) and checksums (a list)")
    return node


def _characters(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    file = _checked_file(dataset["file"], "dataset.file")
    content, came_from = obtain(file, dataset["name"], paths)
    return Source(
        {file["mirror"]: sha256(content)},
        {file["mirror"]: came_from},
        build=lambda folder: characters.build(dataset, content, folder),
    )


def _documents(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    """Sets of documents from a mirror's plain text and table of documents, or from mteval's XML."""
    found: dict[str, list[documents.Document]] = {split: [] for split in SPLITS}
    fingerprint, origin = {}, {}
    for split in SPLITS:
        for name, node in (dataset["sets"].get(split) or {}).items():
            read, key = [], f"dataset.sets.{split}.{name}"
            if not isinstance(node, Mapping) or not {"documents", "table"} <= set(node):
                raise UsageError(f"{key}: got {node!r}, wanted documents (how many), table (a path) and two languages")
            for language in sides(dataset):
                file = _checked_file(node.get(language), f"{key}.{language}")
                content, came_from = obtain({**file, "checksums": []}, dataset["name"], paths)
                if content.lstrip().startswith(b"<"):
                    text = documents.read_xml(content, file["mirror"])
                else:
                    table, _ = obtain({"mirror": node["table"], "urls": []}, dataset["name"], paths)
                    text = documents.read_plain(content, table, file["mirror"])
                documents.verify(
                    text, file.get("checksums") or [], node["documents"], f"{key}.{language}, from {came_from}"
                )
                fingerprint[file["mirror"]], origin[file["mirror"]] = documents.checksum(text), came_from
                read.append(text)
            found[split] += documents.pair(*read, name)
    return Source(fingerprint, origin, lambda: Text(*documents.joined(found, dataset)))


def _local_files(dataset: Mapping[str, Any], _: Mapping[str, Any]) -> Source:
    folder = Path(dataset["folder"]).expanduser()
    if not folder.is_dir():
        raise UsageError(f"dataset.folder: {folder} is not a folder; give the folder that holds your text")
    files = {
        (split, language): folder / f"{split}.{language or 'txt'}" for split in SPLITS for language in sides(dataset)
    }
    for path in files.values():
        if not path.is_file():
            raise UsageError(f"text file {path} does not exist")
    digests = {key: checksums(path, (), unpacked=True)["sha256"] for key, path in files.items()}

    def stream(stages: Stages) -> Raw:
        return Raw({key: [_whole_text(stages, path, digests[key], path)] for key, path in files.items()})

    return Source(
        {path.name: digests[key] for key, path in files.items()},
        {path.name: str(path) for path in files.values()},
        stream=stream,
    )


@dataclass(frozen=True)
class Kind:
    """A kind of data set.

    ``keys`` are those of its node beside the common ones; ``task`` is the only one that it is for; ``segmentation`` is
    what says that no tokeniser or segmentation may touch its symbols. ``published`` texts have one checksum for ever,
    which is compared whenever they are obtained.
    """

    open: Callable[[Mapping[str, Any], Mapping[str, Any]], Source]
    keys: tuple[str, ...]
    task: str | None = None
    segmentation: str | None = None
    published: bool = False


_SEQUENCES = ("sequences", "valid_sequences", "test_sequences", "seed")
KINDS = {
    "files": Kind(_public_files, ("files", "archives", "documents"), published=True),
    "corpora": Kind(_corpora, ("archives", "corpora", "hold_out"), NMT.name, published=True),
    "pairs": Kind(_pairs, ("archives", "pairs", "split"), NMT.name),
    "local": Kind(_local_files, ("folder",)),
    "python_docs": Kind(_python_docs, ("words",)),
    "cldr_de_en": Kind(_cldr, ("pairs", "valid_pairs", "test_pairs", "items", "seed")),
    "characters": Kind(_characters, ("file", "split", "types", "documents"), LM.name, "characters", published=True),
    "documents": Kind(_documents, ("sets", "budget"), NMT.name, published=True),
    "copy": Kind(_recall, ("length", "values", *_SEQUENCES), RECALL.name, "none"),
    "selective_recall": Kind(_recall, ("length", "values", "keys", "pairs", *_SEQUENCES), RECALL.name, "none"),
}
"""The kinds of data sets by their names in ``dataset.kind``: a new one is a file beside this one, and a line here."""
