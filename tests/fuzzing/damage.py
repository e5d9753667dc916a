"""Bytes as disks, networks and strangers leave them: valid files with a few changes."""

from hypothesis import strategies as st

_TELLING = [
    b"\0",
    b"\n",
    b"\r",
    b"\xff",
    b"\xef\xbb\xbf",
    b"{",
    b"}",
    b'"',
    b"-",
    b"9" * 40,
    b"NaN",
    b"\xe2\x80\xa8",
    b" ",
]


@st.composite
def damaged(draw: st.DrawFn, *whole: bytes) -> bytes:
    """One of ``whole`` after up to four changes: a byte, a piece cut out, doubled or put in, the end cut off."""
    content = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.sampled_from([1, 2, 7, 64, 1 << 20])))
        kind = draw(st.sampled_from(["byte", "cut", "double", "insert", "end"]))
        if kind == "byte" and begin < len(content):
            content = content[:begin] + bytes([draw(st.integers(0, 255))]) + content[begin + 1 :]
        elif kind == "cut":
            content = content[:begin] + content[end:]
        elif kind == "double" and end - begin < 65:
            content = content[:end] + content[begin:end] + content[end:]
        elif kind == "insert":
            content = content[:begin] + draw(st.sampled_from(_TELLING) | st.binary(max_size=8)) + content[begin:]
        elif kind == "end":
            content = content[:begin]
    return content


def values() -> st.SearchStrategy:
    """What may stand in a configuration or a record where something else is wanted."""
    plain = (
        st.none()
        | st.booleans()
        | st.integers(-2, 5)
        | st.sampled_from([10**6, 10**12, -(10**12), 10**400, 1e308, 0.5, -0.0, float("nan"), float("inf")])
        | st.sampled_from(
            ["", "x", "???", "../../out", "/", "a\0b", "${seed}", "${nothing}", "${", "é" * 300, "1", "a\nb"]
        )
        | st.text(max_size=8)
    )
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    )
