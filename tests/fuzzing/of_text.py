"""Texts, dictionaries and merges, against a plain reading of the same bytes."""

import gzip
import io
from pathlib import Path

from archives import zipped
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE

from fuzzing.damage import damaged
from fuzzing.judge import REFUSED, Broken, outcome, refused
from fuzzing.target import Target
from gpam_suite.data.binarise import load_dictionary, load_ids
from gpam_suite.data.text.lines import read_lines
from gpam_suite.data.text.segmentation import segmenter

TEXT = "ein Hund läuft .\n\nzwei Katzen\u2028schlafen\u00a0auf\tdem Sofa .\nder <unk> Hund\r\n".encode()


def _expected(content: bytes) -> list[str] | None:
    """Lines by the format's definition; None where it is no text."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    lines = text.removeprefix("\ufeff").split("\n")
    lines = lines[:-1] if text.endswith("\n") else lines
    lines = [line.removesuffix("\r").replace("\r", " ") for line in lines]
    return lines if any(line.strip() for line in lines) else None


def lines(content: bytes, folder: Path) -> None:
    path = folder / "text.txt"
    path.write_bytes(content)
    found = outcome(lambda: read_lines(path))
    expected = _expected(content)
    if (None if found is REFUSED else found) != expected:
        raise Broken(f"{content!r} was read as {found!r}, wanted {expected!r}")


PACKED = {"gz": gzip.compress(TEXT, mtime=0), "zip": zipped({"text": TEXT})}


def packed_lines(case: tuple[str, bytes], folder: Path) -> None:
    """A damaged archive is refused, or gives the text that was packed, as both formats have checksums; one without the
    mark that it begins with is a text like others."""
    suffix, content = case
    path = folder / f"text.{suffix}"
    path.write_bytes(content)
    found = outcome(lambda: read_lines(path))
    packed = content.startswith((b"\x1f\x8b", b"PK\x03\x04", b"PK\x05\x06"))
    if not refused(found, intact=content in PACKED.values()) and found != _expected(TEXT if packed else content):
        raise Broken(f"the archive {content!r} was read as {found!r}")


DICTIONARY = b"ein 10\nHund 7\nl\xc3\xa4uft 7\n. 3\nmadeupword0000 0\n"


def dictionary(content: bytes, folder: Path) -> None:
    path = folder / "dict.txt"
    path.write_bytes(content)
    found = outcome(lambda: load_dictionary(path))
    if refused(found, intact=content == DICTIONARY):
        return
    lines = content.decode().removesuffix("\n").split("\n") if content else []
    words = ["<s>", "<pad>", "</s>", "<unk>", *(line.rpartition(" ")[0] for line in lines)]
    counts = [int(line.rpartition(" ")[2]) for line in lines]
    if found.symbols != words or found.count[4:] != counts or load_ids(path) != found.indices:
        raise Broken(f"{content!r} was read as {found.symbols} {found.count}")


CODES = b"#version: 0.2\nK a\nKa t\nKat z\nKatz e\nKatze n</w>\ni n</w>\ne in</w>\n"


def codes(case: tuple[bytes, str], folder: Path) -> None:
    content, line = case
    path = folder / "codes.txt"
    path.write_bytes(content)
    segment = outcome(lambda: segmenter("subword_nmt", path))
    if refused(segment, intact=content == CODES):
        return
    tokens = " ".join(line.split())
    merges = content.decode() if b"\n" in content.rstrip(b"\n") else "#version: 0.2\nno merge\n"
    wanted = BPE(io.StringIO(merges), glossaries=["<unk>"]).process_line(tokens)
    if segment(tokens) != wanted:
        raise Broken(f"{tokens!r} became {segment(tokens)!r}, subword-nmt says {wanted!r}")


TARGETS = (
    Target("text", lambda _: damaged(TEXT, b"\xef\xbb\xbf" + TEXT) | st.binary(max_size=60), lines, 1_500, 150),
    Target(
        "packed text",
        lambda _: st.one_of([st.tuples(st.just(kind), damaged(content)) for kind, content in PACKED.items()]),
        packed_lines,
        700,
        100,
    ),
    Target("dictionary", lambda _: damaged(DICTIONARY) | st.binary(max_size=30), dictionary, 1_200, 150),
    Target(
        "BPE codes",
        lambda _: st.tuples(damaged(CODES), st.text(st.sampled_from("Katzen ein<unk>@é"), max_size=20)),
        codes,
        700,
        100,
    ),
)
