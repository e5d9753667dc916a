"""Archives: whatever is in them, the named file comes out or a sentence, and nothing is written anywhere."""

import tarfile
from pathlib import Path

from archives import tarred, zipped
from hypothesis import strategies as st

from fuzzing.damage import damaged
from fuzzing.judge import REFUSED, Broken, outcome, refused
from fuzzing.target import Target
from gpam_suite.data.store.unpack import open_member

_CONTENT = b"one\ntwo\n"
_KINDS = [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]


def _tar(mode: str, entries: list[tuple[str, bytes, str]]) -> bytes:
    contents = (_CONTENT if kind == tarfile.REGTYPE else link.encode() for _, kind, link in entries)
    return tarred([(name, kind, own) for (name, kind, _), own in zip(entries, contents, strict=True)], mode)


_USUAL = [("x", tarfile.DIRTYPE, ""), ("folder/a", tarfile.REGTYPE, "")]
WHOLE = [
    *(_tar(mode, _USUAL) for mode in ("w", "w:gz", "w:bz2", "w:xz")),
    *(zipped({"../evil": b"evil", "folder/a": _CONTENT}, method) for method in (0, 8, 12, 14)),
]
_NAMES = ["folder/a", "./folder/a", "../folder/a", "/folder/a", "evil", "../../evil", "", "a\0b"]


def damaged_archive(content: bytes, folder: Path) -> None:
    """tar has no checksum of a content, so a changed byte may come out; zip, gzip, bz2 and xz have."""
    found = _read(content, "folder/a", folder)
    plain_tar = content[257:262] == b"ustar"
    if not refused(found, intact=content in WHOLE) and found != _CONTENT and not plain_tar:
        raise Broken(f"{content!r} gave {found!r}")


def _strange(case: tuple[list[tuple[str, bytes, str]], str], folder: Path) -> None:
    entries, member = case
    found = _read(_tar("w", entries), member, folder)
    plain = {name.removeprefix("./") for name, kind, _ in entries if kind == tarfile.REGTYPE}
    if found is REFUSED and member in plain and member not in ("", "a\0b") and ".." not in member and member[0] != "/":
        raise Broken(f"{member!r} is there and was refused")
    if found not in (REFUSED, _CONTENT):
        raise Broken(f"{member!r} gave {found!r}")


def _read(content: bytes, member: str, folder: Path) -> object:
    path = folder / "archive"
    path.write_bytes(content)

    def work() -> bytes:
        with open_member(path, member) as file:
            return file.read()

    found = outcome(work)
    if [entry.name for entry in folder.iterdir()] != ["archive"] or list(folder.parent.glob("*evil*")):
        raise Broken("something was written")
    return found


TARGETS = (
    Target("archives", lambda _: damaged(*WHOLE), damaged_archive, 700, 100),
    Target(
        "archives with links, devices and names that lead out",
        lambda _: st.tuples(
            st.lists(
                st.tuples(st.sampled_from(_NAMES[:6]), st.sampled_from(_KINDS), st.sampled_from(_NAMES[:6])), max_size=4
            ),
            st.sampled_from(_NAMES),
        ),
        _strange,
        600,
        60,
    ),
)
