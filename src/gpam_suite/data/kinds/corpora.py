"""Parallel corpora as they were published: archives of plain text, of NIST's XML and of WIT3's tagged talks."""

import html
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.options import whole_number
from gpam_suite.data.options import SPLITS, sides
from gpam_suite.data.progress import progress
from gpam_suite.data.store.download import checked_file, obtain_file
from gpam_suite.data.store.stages import Piece, Stages
from gpam_suite.data.store.unpack import open_member
from gpam_suite.data.text.lines import stream_lines

Archive = tuple[Path, str, str]  # its file, the SHA-256 of that, and where it came from
_SOURCE, _TEXT = "source.txt", "text.txt"
_SEGMENT = re.compile(r'<seg id="\d*">\s*(.*?)\s*</seg>\s*', re.IGNORECASE)
_ABOUT = ("<url>", "<talkid>", "<keywords>")
_AROUND = re.compile(r"</?(?:title|description)>")


def _plain(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """One sentence a line."""
    return ((line, line) for line in lines)


def _talks(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """WIT3's training text: lines about a talk are left out, its title and description are sentences."""
    for line in lines:
        if not any(tag in line for tag in _ABOUT):
            text = _AROUND.sub("", line)
            yield text, text


def _segments(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """NIST's XML, one ``<seg>`` a line.

    fairseq's recipes tokenise a segment as it stands in the file, entities and all, with straight apostrophes. The
    reference text has the characters that are meant.
    """
    for line in lines:
        if match := _SEGMENT.search(line):
            yield match[1].replace("\u2019", "'"), html.unescape(match[1])


FORMATS: dict[str, Callable[[Iterator[str]], Iterator[tuple[str, str]]]] = {
    "plain": _plain,
    "talks": _talks,
    "segments": _segments,
}


def archive(dataset: Mapping[str, Any], name: str, paths: Mapping[str, Any]) -> Archive:
    """Path, SHA-256 and origin of one of ``dataset.archives``."""
    node = checked_file((dataset.get("archives") or {}).get(name), f"dataset.archives.{name}")
    return obtain_file(node, dataset["name"], paths, archive=True)


def entries(dataset: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Split and node of each corpus of ``dataset.corpora``, checked."""
    found = dataset["corpora"]
    wanted = set(SPLITS) - ({"valid"} if dataset.get("hold_out") else set())
    if not isinstance(found, Mapping) or set(found) != wanted:
        got = sorted(found) if isinstance(found, Mapping) else found
        raise UsageError(f"dataset.corpora: got {got}, wanted lists of corpora for {', '.join(sorted(wanted))}")
    if dataset.get("hold_out") is not None:
        whole_number(dataset["hold_out"], 2, "dataset.hold_out")
    for split in SPLITS:
        for number, node in enumerate(found.get(split) or []):
            key = f"dataset.corpora.{split}[{number}]"
            needed = {"archive", "format", *sides(dataset)}
            if not isinstance(node, Mapping) or not needed <= set(node):
                raise UsageError(f"{key}: got {node!r}, wanted {', '.join(sorted(needed))}")
            if node["format"] not in FORMATS:
                raise UsageError(f"{key}.format: got {node['format']!r}, wanted one of {', '.join(FORMATS)}")
            yield split, node


def extract(
    stages: Stages, archive: Archive, member: str, form: str, lines: int | None = None
) -> tuple[Piece, Piece, int]:
    """What is tokenised, the text that is meant, and the number of sentences of one member of an archive, by a stage.

    Where ``lines`` is given, it must be their number.
    """
    path, digest, _ = archive
    name = f"{path.name}:{member}"

    def work(folder: Path) -> dict[str, int]:
        number = 0
        with (
            open_member(path, member) as file,
            progress(f"unpack {member}", None) as bar,
            (folder / _SOURCE).open("w", encoding="utf-8", newline="\n") as source,
            (folder / _TEXT).open("w", encoding="utf-8", newline="\n") as text,
        ):
            for tokenised, meant in FORMATS[form](stream_lines(file, name)):
                source.write(f"{tokenised}\n")
                text.write(f"{meant}\n")
                bar.update(len(tokenised))
                number += 1
        return {"lines": number}

    stage = stages.run("extract", {"archive": digest, "member": member, "format": form}, work)
    if lines is not None and stage.facts["lines"] != lines:
        raise UsageError(f"{name} has {stage.facts['lines']:,} sentences, wanted {lines:,}: not the published text")
    return stage.piece(_SOURCE), stage.piece(_TEXT), stage.facts["lines"]
