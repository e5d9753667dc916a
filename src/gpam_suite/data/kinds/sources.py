"""Raw text of a data set, whatever its kind: public files, the user's own files, generated text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.files import sha256
from gpam_suite.common.options import mapping
from gpam_suite.common.tasks import LM, NMT, RECALL
from gpam_suite.data.kinds import characters, cldr, documents, pairs, python_docs, recall
from gpam_suite.data.kinds.texts import Part, Text, archive, corpora
from gpam_suite.data.options import SPLITS, languages_of
from gpam_suite.data.store.download import checked_file, checksum, mirrored, obtain, obtain_file
from gpam_suite.data.store.stages import Stages
from gpam_suite.data.store.unpack import open_member
from gpam_suite.data.text.lines import file_name, read_lines, stream_lines, verified, wikitext_documents

Key = tuple[str, str | None]  # split, language or None
Node = Mapping[str, Any]


@dataclass
class Raw:
    """The raw text of every split and side in one or more parts, and the first line of each document where known."""

    parts: dict[Key, list[Part]]
    documents: dict[str, list[int]]


@dataclass
class Source:
    """A data set before it is read: what its text depends on, and one of two ways to get the text."""

    fingerprint: dict[str, str]  # file or generator -> checksum or version; part of the preparation's hash
    origin: dict[str, str]  # file -> where it came from; only for the manifest
    raw: Callable[[Stages], Raw] | None = None
    build: Callable[[Path], dict[str, Any]] | None = None  # writes text/ and bin/ itself


Opener = Callable[[Node, Node], Source]  # of a checked ``dataset`` node and ``paths``


def _keys(dataset: Node) -> list[Key]:
    return [(split, language) for split in SPLITS for language in languages_of(dataset)]


def _in_memory(
    dataset: Node,
    fingerprint: dict[str, str],
    origin: dict[str, str],
    read: Callable[[], tuple[dict[Key, list[str]], dict[str, list[int]]]],
) -> Source:
    """The source of a text that fits into memory: ``read`` gives its lines and documents."""

    def work(folder: Path) -> dict[str, Any]:
        lines, starts = read()
        for key in _keys(dataset):
            text = "".join(f"{line}\n" for line in lines[key])
            (folder / file_name(*key)).write_text(text, encoding="utf-8", newline="\n")
        return {"lines": {file_name(*key): len(lines[key]) for key in _keys(dataset)}, "documents": starts}

    def raw(stages: Stages) -> Raw:
        stage = stages.run("generate", {"dataset": dataset, "source": fingerprint}, work)
        parts = {}
        for key in _keys(dataset):
            piece = stage.piece(file_name(*key))
            parts[key] = [Part(piece, piece, stage.facts["lines"][file_name(*key)])]
        return Raw(parts, stage.facts["documents"])

    return Source(fingerprint, origin, raw)


def _generated(generator: ModuleType) -> Opener:
    return lambda dataset, _: _in_memory(
        dataset, generator.fingerprint(), {}, lambda: (generator.generate(dataset), {})
    )


def _python_docs(dataset: Node, _: Node) -> Source:
    def read() -> tuple[dict[Key, list[str]], dict[str, list[int]]]:
        lines, starts = python_docs.generate(dataset["words"])
        return {(split, None): text for split, text in lines.items()}, starts

    return _in_memory(dataset, python_docs.fingerprint(), {}, read)


def _in_files(texts: dict[Key, list[Text]], *, wikitext: bool = False) -> Source:
    """The source of texts that are read by stages, with the documents that the ``wikitext`` format has."""
    every = [text for own in texts.values() for text in own]

    def raw(stages: Stages) -> Raw:
        parts = {key: [text.read(stages) for text in own] for key, own in texts.items()}
        starts = {}
        for split in SPLITS if wikitext else ():
            with parts[split, None][0].text.path.open(encoding="utf-8", newline="\n") as lines:
                starts[split] = wikitext_documents(lines)
        return Raw(parts, starts)

    return Source({text.name: text.digest for text in every}, {text.name: text.origin for text in every}, raw)


def _public_files(dataset: Node, paths: Node) -> Source:
    """Texts by themselves, or where the mirror does not have one and the node names an archive, out of that."""
    texts = {}
    archived = cache(lambda name: archive(dataset, name, paths))
    for key in _keys(dataset):
        where, node = ["dataset.files", *filter(None, key)], dataset["files"]
        for part in where[1:]:
            node = node.get(part) if isinstance(node, Mapping) else None
        file = checked_file(node, ".".join(where))
        if file.get("archive") and not mirrored(file["mirror"], paths):
            texts[key] = [Text(f"{file['archive']}:{file['member']}", *archived(file["archive"]), file["member"])]
        else:
            texts[key] = [Text(file["mirror"], *obtain_file(file, dataset["name"], paths))]
    return _in_files(texts, wikitext=dataset.get("documents") == "wikitext")


def _corpora(dataset: Node, paths: Node) -> Source:
    archived = cache(lambda name: archive(dataset, name, paths))
    texts: dict[Key, list[Text]] = {}
    for split, node in corpora(dataset):
        for language in languages_of(dataset):
            found = archived(node["archive"])
            text = Text(node["archive"], *found, node[language], node["format"], node.get("lines"))
            texts.setdefault((split, language), []).append(text)
    return _in_files(texts)


def _local_files(dataset: Node, _: Node) -> Source:
    folder = Path(dataset["folder"]).expanduser()
    if not folder.is_dir():
        raise UsageError(f"dataset.folder: {folder} is not a folder; give the folder that holds your text")
    files = {(split, language): folder / f"{split}.{language or 'txt'}" for split, language in _keys(dataset)}
    digests = {path: checksum(path, "sha256", unpacked=True) for path in files.values()}
    return _in_files({key: [Text(path.name, path, digests[path], str(path), own=True)] for key, path in files.items()})


def _pairs(dataset: Node, paths: Node) -> Source:
    """One file of pairs out of an archive, or where the mirror has its pairs as texts and not the archive, those."""
    pairs.check(dataset)
    node, both = dataset["pairs"], sorted(languages_of(dataset))
    texts = node.get("texts") or {}
    packed = (dataset.get("archives") or {}).get(node["archive"]) or {}
    copies = {name: mirrored(name, paths) for language in both for name in texts.get(language, [])}
    if copies and all(copies.values()) and not mirrored(packed.get("mirror", "."), paths):
        left, right = ([line for name in texts[side] for line in read_lines(copies[name])] for side in both)
        if len(left) != len(right):
            raise UsageError(f"dataset.pairs.texts: {' and '.join(map(str, texts.values()))} differ in their lines")
        found, origin = zip(left, right, strict=True), f"mirror:{', '.join(copies)}"
    else:
        path, _, origin = archive(dataset, node["archive"], paths)
        with open_member(path, node["member"]) as file:
            found = pairs.read_table(stream_lines(file, node["member"]), node["columns"], both, node["member"])
    found = sorted(set(found))
    what = f"{dataset['name']}, from {origin}: {len(found):,} different pairs"
    digest = verified(map("\t".join, found), node.get("checksums") or [], what)
    return _in_memory(dataset, {"pairs": digest}, {"pairs": origin}, lambda: (pairs.split(found, dataset), {}))


def _characters(dataset: Node, paths: Node) -> Source:
    file = checked_file(dataset["file"], "dataset.file")
    content, origin = obtain(file, dataset["name"], paths)
    return Source(
        {file["mirror"]: sha256(content)},
        {file["mirror"]: origin},
        build=lambda folder: characters.build(dataset, content, folder),
    )


def _documents(dataset: Node, paths: Node) -> Source:
    """Sets of documents from a mirror's plain text and table of documents, or from mteval's XML."""
    found: dict[str, list[documents.Document]] = {split: [] for split in SPLITS}
    fingerprint, origin = {}, {}
    for split in SPLITS:
        for name, node in mapping(dataset["sets"].get(split) or {}, f"dataset.sets.{split}").items():
            read, key = [], f"dataset.sets.{split}.{name}"
            if not isinstance(node, Mapping) or not {"documents", "table"} <= set(node):
                raise UsageError(f"{key}: got {node!r}, wanted documents (how many), table (a path) and two languages")
            for language in languages_of(dataset):
                file = checked_file(node.get(language), f"{key}.{language}")
                content, came_from = obtain({**file, "checksums": []}, dataset["name"], paths)
                if content.lstrip().startswith(b"<"):
                    text = documents.read_xml(content, file["mirror"])
                else:
                    table = checked_file({"mirror": node["table"], "urls": []}, f"{key}.table")
                    text = documents.read_plain(content, obtain(table, dataset["name"], paths)[0], file["mirror"])
                what = f"{key}.{language}, from {came_from}: {len(text)} documents"
                digest = verified([line for document in text for line in document], file.get("checksums") or [], what)
                if len(text) != node["documents"]:
                    raise UsageError(f"{what}, wanted {node['documents']}; remove the file and get it again")
                fingerprint[file["mirror"]], origin[file["mirror"]] = digest, came_from
                read.append(text)
            found[split] += documents.pair(*read, name)
            fingerprint[f"{key}: lines of each document"] = sha256(str([len(text) for text in read[0]]).encode())
    return _in_memory(dataset, fingerprint, origin, lambda: documents.joined(found, dataset))


@dataclass(frozen=True)
class Kind:
    """A kind of data set.

    ``keys`` are those of its node beside the common ones; ``task`` is the only one that it is for; ``segmentation`` is
    what says that no tokeniser or segmentation may touch its symbols. ``published`` texts have one checksum for ever,
    which is compared whenever they are obtained, where it is known.
    """

    open: Opener
    keys: tuple[str, ...]
    task: str | None = None
    segmentation: str | None = None
    published: bool = False


_SEQUENCES = ("length", "values", "sequences", "valid_sequences", "test_sequences", "seed")
KINDS = {
    "files": Kind(_public_files, ("files", "archives", "documents"), published=True),
    "corpora": Kind(_corpora, ("archives", "corpora", "hold_out"), NMT.name, published=True),
    "pairs": Kind(_pairs, ("archives", "pairs", "split"), NMT.name),
    "local": Kind(_local_files, ("folder",)),
    "python_docs": Kind(_python_docs, ("words",), LM.name),
    "cldr_de_en": Kind(_generated(cldr), ("pairs", "valid_pairs", "test_pairs", "items", "seed"), NMT.name),
    "characters": Kind(_characters, ("file", "split", "types", "documents"), LM.name, "characters", published=True),
    "documents": Kind(_documents, ("sets", "budget"), NMT.name, published=True),
    "copy": Kind(_generated(recall), _SEQUENCES, RECALL.name, "none"),
    "selective_recall": Kind(_generated(recall), (*_SEQUENCES, "keys", "pairs"), RECALL.name, "none"),
}
"""The kinds of data sets by their names in ``dataset.kind``: a new one is a file beside this one, and a line here."""
