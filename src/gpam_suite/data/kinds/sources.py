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
from gpam_suite.data.store.download import checked_file, checksum, mirror_folder, obtain, obtain_file
from gpam_suite.data.store.stages import Piece, Stages
from gpam_suite.data.store.unpack import open_member, open_text
from gpam_suite.data.text.lines import (
    file_name,
    read_lines,
    sha256,
    stream_lines,
    verified,
    wikitext_documents,
    write_lines,
)

_TEXT = "text.txt"
Key = tuple[str, str | None]  # split, language or None


@dataclass(frozen=True)
class Part:
    """Text of one side: what is tokenised, and what it means (mostly the same), line by line."""

    source: Piece
    text: Piece
    lines: int


@dataclass
class Raw:
    """The raw text of every split and side in one or more parts, and the first line of each document where known."""

    parts: dict[Key, list[Part]]
    documents: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class Source:
    """A data set before it is read: what its text depends on, and one of two ways to get the text."""

    fingerprint: dict[str, str]  # file or generator -> checksum or version; part of the preparation's hash
    origin: dict[str, str]  # file -> where it came from; only for the manifest
    raw: Callable[[Stages], Raw] | None = None
    build: Callable[[Path], dict[str, Any]] | None = None  # writes text/ and bin/ itself


def open_source(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    """The source of a checked ``dataset`` node."""
    return KINDS[dataset["kind"]].open(dataset, paths)


def _python_docs(dataset: Mapping[str, Any], _: Mapping[str, Any]) -> Source:
    def read() -> tuple[dict[Key, list[str]], dict[str, list[int]]]:
        lines, starts = python_docs.generate(dataset["words"])
        return {(split, None): text for split, text in lines.items()}, starts

    return _in_memory(dataset, python_docs.fingerprint(), {}, read)


def _cldr(dataset: Mapping[str, Any], _: Mapping[str, Any]) -> Source:
    return _in_memory(dataset, cldr.fingerprint(), {}, lambda: (cldr.generate(dataset), {}))


def _recall(dataset: Mapping[str, Any], _: Mapping[str, Any]) -> Source:
    return _in_memory(dataset, recall.fingerprint(), {}, lambda: (recall.generate(dataset), {}))


def _in_memory(
    dataset: Mapping[str, Any],
    fingerprint: dict[str, str],
    origin: dict[str, str],
    read: Callable[[], tuple[dict[Key, list[str]], dict[str, list[int]]]],
) -> Source:
    """The source of a text that fits into memory: ``read`` gives its lines and documents."""
    keys = [(split, language) for split in SPLITS for language in sides(dataset)]

    def work(folder: Path) -> dict[str, Any]:
        lines, starts = read()
        for key in keys:
            write_lines(folder / file_name(*key), lines[key])
        return {"lines": {file_name(*key): len(lines[key]) for key in keys}, "documents": starts}

    def raw(stages: Stages) -> Raw:
        stage = stages.run("generate", {"dataset": dataset, "source": fingerprint}, work)
        parts = {}
        for key in keys:
            piece = stage.piece(file_name(*key))
            parts[key] = [Part(piece, piece, stage.facts["lines"][file_name(*key)])]
        return Raw(parts, stage.facts["documents"])

    return Source(fingerprint, origin, raw)


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

    stage = stages.run("read", {"text": digest}, work)
    return Part(stage.piece(_TEXT), stage.piece(_TEXT), stage.facts["lines"])


def _documents_of(stages: Stages, text: Piece) -> list[int]:
    def work(_: Path) -> dict[str, list[int]]:
        with text.path.open(encoding="utf-8", newline="\n") as lines:
            return {"starts": wikitext_documents(lines)}

    return stages.run("documents", {"text": text}, work).facts["starts"]


def _public_files(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    """Texts by themselves, or where the mirror does not have one and the node names an archive, out of that."""
    mirror = mirror_folder(paths)
    nodes, found, fingerprint, origin = {}, {}, {}, {}
    archives: dict[str, corpora.Archive] = {}
    for key in ((split, language) for split in SPLITS for language in sides(dataset)):
        nodes[key] = file = _file_node(dataset, *key)
        if file.get("archive") and not (mirror and (mirror / file["mirror"]).is_file()):
            if file["archive"] not in archives:
                archives[file["archive"]] = corpora.archive(dataset, file["archive"], paths)
            _, digest, came_from = archives[file["archive"]]
            name = f"{file['archive']}:{file['member']}"
        else:
            found[key], digest, came_from = obtain_file(file, dataset["name"], paths)
            name = file["mirror"]
        fingerprint[name], origin[name] = digest, came_from

    def raw(stages: Stages) -> Raw:
        parts = {}
        for key, file in nodes.items():
            if key in found:
                parts[key] = [_whole_text(stages, found[key], fingerprint[file["mirror"]], file["mirror"])]
            else:
                parts[key] = [Part(*corpora.extract(stages, archives[file["archive"]], file["member"], "plain"))]
        if dataset.get("documents") != "wikitext":
            return Raw(parts)
        return Raw(parts, {split: _documents_of(stages, parts[split, None][0].text) for split in SPLITS})

    return Source(fingerprint, origin, raw)


def _corpora(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    entries = list(corpora.entries(dataset))
    names = sorted({node["archive"] for _, node in entries})
    archives = {name: corpora.archive(dataset, name, paths) for name in names}

    def raw(stages: Stages) -> Raw:
        parts: dict[Key, list[Part]] = {}
        for split, node in entries:
            for language in sides(dataset):
                where = archives[node["archive"]], node[language], node["format"], node.get("lines")
                parts.setdefault((split, language), []).append(Part(*corpora.extract(stages, *where)))
        return Raw(parts)

    return Source(
        {name: digest for name, (_, digest, _) in archives.items()},
        {name: came_from for name, (_, _, came_from) in archives.items()},
        raw,
    )


def _pairs(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    """One file of pairs out of an archive, or where the mirror has its pairs as texts and not the archive, those."""
    pairs.check(dataset)
    node, both, mirror = dataset["pairs"], pairs.languages(dataset), mirror_folder(paths)
    texts = node.get("texts") or {}
    archive = (dataset.get("archives") or {}).get(node["archive"]) or {}
    names = [name for language in both for name in texts.get(language, [])]
    whole = mirror is not None and (mirror / archive.get("mirror", ".")).is_file()
    if mirror and names and not whole and all((mirror / name).is_file() for name in names):
        sides_of = [[line for name in texts[language] for line in read_lines(mirror / name)] for language in both]
        if len(sides_of[0]) != len(sides_of[1]):
            raise UsageError(f"dataset.pairs.texts: {' and '.join(map(str, texts.values()))} differ in their lines")
        found = list(zip(*sides_of, strict=True))
        came_from = f"mirror:{', '.join(names)}"
    else:
        path, _, came_from = corpora.archive(dataset, node["archive"], paths)
        with open_member(path, node["member"]) as file:
            found = pairs.read_table(stream_lines(file, node["member"]), node["columns"], both, node["member"])
    found = sorted(set(found))
    digest = pairs.checksum(found, node.get("checksums") or [], f"{dataset['name']}, from {came_from}")
    return _in_memory(dataset, {"pairs": digest}, {"pairs": came_from}, lambda: (pairs.split(found, dataset), {}))


def _file_node(dataset: Mapping[str, Any], *key: str | None) -> Mapping[str, Any]:
    """The entry of ``dataset.files`` for one split and side."""
    parts = [part for part in key if part]
    node: Any = dataset["files"]
    for part in parts:
        node = node.get(part) if isinstance(node, Mapping) else None
    return checked_file(node, ".".join(["dataset.files", *parts]))


def _characters(dataset: Mapping[str, Any], paths: Mapping[str, Any]) -> Source:
    file = checked_file(dataset["file"], "dataset.file")
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
                file = checked_file(node.get(language), f"{key}.{language}")
                content, came_from = obtain({**file, "checksums": []}, dataset["name"], paths)
                if content.lstrip().startswith(b"<"):
                    text = documents.read_xml(content, file["mirror"])
                else:
                    table, _ = obtain({"mirror": node["table"], "urls": []}, dataset["name"], paths)
                    text = documents.read_plain(content, table, file["mirror"])
                what = f"{key}.{language}, from {came_from}: {len(text)} documents"
                digest = verified([line for document in text for line in document], file.get("checksums") or [], what)
                if len(text) != node["documents"]:
                    raise UsageError(f"{what}, wanted {node['documents']}; remove the file and get it again")
                fingerprint[file["mirror"]], origin[file["mirror"]] = digest, came_from
                read.append(text)
            found[split] += documents.pair(*read, name)
    return _in_memory(dataset, fingerprint, origin, lambda: documents.joined(found, dataset))


def _local_files(dataset: Mapping[str, Any], _: Mapping[str, Any]) -> Source:
    folder = Path(dataset["folder"]).expanduser()
    if not folder.is_dir():
        raise UsageError(f"dataset.folder: {folder} is not a folder; give the folder that holds your text")
    files = {
        (split, language): folder / f"{split}.{language or 'txt'}" for split in SPLITS for language in sides(dataset)
    }
    digests = {key: checksum(path, "sha256", unpacked=True) for key, path in files.items()}

    def raw(stages: Stages) -> Raw:
        return Raw({key: [_whole_text(stages, path, digests[key], path)] for key, path in files.items()})

    return Source(
        {path.name: digests[key] for key, path in files.items()},
        {path.name: str(path) for path in files.values()},
        raw,
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
