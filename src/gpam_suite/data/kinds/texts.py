"""Texts as they were published: plain, in NIST's XML or with WIT3's tags; in files of their own or in archives."""

import contextlib
import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.options import one_of, several, whole_number
from gpam_suite.data.options import SPLITS, languages_of
from gpam_suite.data.progress import progress
from gpam_suite.data.store.download import checked_file, checksum, obtain_file
from gpam_suite.data.store.stages import Piece, Stages
from gpam_suite.data.store.unpack import open_member, open_text
from gpam_suite.data.text.lines import stream_lines

_TEXT, _SOURCE = "text.txt", "source.txt"
_SEGMENT = re.compile(r'<seg id="\d*">\s*(.*?)\s*</seg>\s*', re.IGNORECASE)
_ABOUT = ("<url>", "<talkid>", "<keywords>")
_AROUND = re.compile(r"</?(?:title|description)>")


def _plain(lines: Iterator[str]) -> Iterator[tuple[str]]:
    """One sentence a line."""
    return ((line,) for line in lines)


def _talks(lines: Iterator[str]) -> Iterator[tuple[str]]:
    """WIT3's training text: lines about a talk are left out, its title and description are sentences."""
    return ((_AROUND.sub("", line),) for line in lines if not any(tag in line for tag in _ABOUT))


def _segments(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """NIST's XML, one ``<seg>`` a line: the characters that are meant, and what is tokenised.

    fairseq's recipes tokenise a segment as it stands in the file, entities and all, with straight apostrophes.
    """
    for line in lines:
        if match := _SEGMENT.search(line):
            yield html.unescape(match[1]), match[1].replace("\u2019", "'")


FORMATS = {"plain": _plain, "talks": _talks, "segments": _segments}


@dataclass(frozen=True)
class Part:
    """Text of one side: what is tokenised, and what it means (mostly the same), line by line."""

    source: Piece
    text: Piece
    lines: int


@dataclass(frozen=True)
class Text:
    """A text before it is read.

    ``name``, ``digest`` and ``origin`` are those of the file or archive at ``path``, as the manifest has them. In an
    archive it is the file ``member``; it has the ``form`` of :data:`FORMATS`, and where ``lines`` is given so many.
    One of the user's ``own`` is compared once more when it has been read.
    """

    name: str
    path: Path
    digest: str
    origin: str
    member: str | None = None
    form: str = "plain"
    lines: int | None = None
    own: bool = False

    def read(self, stages: Stages) -> Part:
        """Read it by a stage."""
        name = f"{self.path.name}:{self.member}" if self.member else self.path

        def work(folder: Path) -> dict[str, int]:
            lines = 0
            with contextlib.ExitStack() as stack:
                opened = open_member(self.path, self.member) if self.member else open_text(self.path)
                file, bar = stack.enter_context(opened), stack.enter_context(progress(f"read {name}", None))
                targets = [
                    stack.enter_context((folder / target).open("w", encoding="utf-8", newline="\n"))
                    for target in ((_TEXT, _SOURCE) if self.form == "segments" else (_TEXT,))
                ]
                for versions in FORMATS[self.form](stream_lines(file, name)):
                    for target, version in zip(targets, versions, strict=True):
                        target.write(f"{version}\n")
                    bar.update(len(versions[0].encode()) + 1)
                    lines += 1
            if self.own and checksum(self.path, "sha256", unpacked=True) != self.digest:
                raise UsageError(f"{self.path} changed while it was read; start again when it stays as it is")
            return {"lines": lines}

        made_from = {"file": self.digest, "member": self.member, "format": self.form}
        stage = stages.run("read", made_from, work)
        found = stage.facts["lines"]
        if self.lines not in (None, found):
            raise UsageError(f"{name} has {found:,} sentences, wanted {self.lines:,}: not the published text")
        text = stage.piece(_TEXT)
        return Part(stage.piece(_SOURCE) if _SOURCE in stage.files else text, text, found)


def archive(dataset: Mapping[str, Any], name: str, paths: Mapping[str, Any]) -> tuple[Path, str, str]:
    """Path, SHA-256 and origin of one of ``dataset.archives``."""
    node = checked_file((dataset.get("archives") or {}).get(name), f"dataset.archives.{name}")
    return obtain_file(node, dataset["name"], paths, archive=True)


def corpora(dataset: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Split and node of each corpus of ``dataset.corpora``, checked."""
    given, found = dataset["corpora"], []
    wanted = set(SPLITS) - ({"valid"} if dataset.get("hold_out") else set())
    if not isinstance(given, Mapping) or set(given) != wanted:
        got = sorted(given) if isinstance(given, Mapping) else given
        raise UsageError(f"dataset.corpora: got {got}, wanted lists of corpora for {', '.join(sorted(wanted))}")
    if dataset.get("hold_out") is not None:
        whole_number(dataset["hold_out"], 2, "dataset.hold_out")
    needed = {"archive", "format", *languages_of(dataset)}
    for split in SPLITS:
        nodes = several(given.get(split) or [], f"dataset.corpora.{split}")
        if split in wanted and not nodes:
            raise UsageError(f"dataset.corpora.{split}: got none, wanted at least one corpus")
        for number, node in enumerate(nodes):
            key = f"dataset.corpora.{split}[{number}]"
            if not isinstance(node, Mapping) or not all(isinstance(node.get(part), str) for part in needed):
                raise UsageError(f"{key}: got {node!r}, wanted {', '.join(sorted(needed))}, each a text")
            one_of(node["format"], tuple(FORMATS), f"{key}.format")
            if node.get("lines") is not None:
                whole_number(node["lines"], 1, f"{key}.lines")
            found.append((split, node))
    return found
