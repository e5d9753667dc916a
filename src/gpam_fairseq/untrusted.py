"""What fairseq reads that a stranger may have made, or a disk has spoilt: checkpoints, and options that are Python."""

import argparse
import ast
import pickle
import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import torch

from gpam.errors import UsageError


def load_without_executing(file: Any, **options: Any) -> Any:
    """Repair 2: ``torch.load`` for a file that a stranger may have made, or a disk has spoilt.

    Raises:
        UsageError: it holds an object of another type, or an option that could read the environment.
        BadZipFile: one of its parts is not what was written.
    """
    check_sums(file)
    try:
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickle's protocols in damaged files
            loaded = torch.load(file, **options | {"weights_only": True})
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found is None:  # torch's own words advise to load it all the same, with its code
            raise pickle.UnpicklingError("its pickle is damaged") from None
        raise UsageError(
            f"checkpoint {getattr(file, 'name', file)} holds an object of type {found[1]}, and making it could run any "
            "code: only tensors and plain data are loaded; use a checkpoint that this suite or fairseq's trainer wrote"
        ) from None
    if isinstance(loaded, dict):
        if "cfg" in loaded:
            loaded["cfg"] = _as_plain_text(loaded["cfg"])
        if isinstance(loaded.get("args"), argparse.Namespace) and "${" in str(vars(loaded["args"])):
            raise UsageError(
                f"checkpoint {getattr(file, 'name', file)} has '${{' in its args, which could read the environment of "
                "this process; use a checkpoint that this suite or fairseq's trainer wrote"
            )
    return loaded


def check_sums(file: Any) -> None:
    """Compare the parts of a checkpoint with the CRC-32 that torch wrote beside each of them, and never compares.

    The formats of torch before 1.6 hold no sums. ``file`` is a path, or a file that stays where it was.

    Raises:
        BadZipFile: a part is not what was written.
    """
    at = file.tell() if hasattr(file, "tell") else None
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                parts = archive.infolist()
                spoilt = [part.filename for part in parts if part.compress_size != part.file_size]
                if spoilt := spoilt or [name for name in [archive.testzip()] if name]:
                    raise zipfile.BadZipFile(f"part {spoilt[0]} is not what was written")
    except (EOFError, NotImplementedError, RuntimeError, ValueError, UnicodeError, zlib.error) as error:
        raise zipfile.BadZipFile(f"it is not as it was written ({error})") from None
    finally:
        if at is not None:
            file.seek(at)


_OWN_INTERPOLATION = re.compile(r"\$\{\w+(\.\w+)*\}")


def _as_plain_text(node: Any) -> Any:
    """A checkpoint's configuration in which OmegaConf finds no ``${oc.env:NAME}`` to call: whatever is more than one of
    fairseq's own references to another option is text."""
    if isinstance(node, Mapping):
        return {key: _as_plain_text(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_as_plain_text(value) for value in node]
    if isinstance(node, str) and not _OWN_INTERPOLATION.fullmatch(node):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", node)
    return node


_MOST_ITEMS = 10_000


def literal(text: str) -> Any:
    """Repair 7: the value of Python literals, their sums and repetitions: ``[(512, 3)] * 20``; nothing is called.

    Raises:
        UsageError: any other text.
    """
    if not isinstance(text, str):  # as eval does; eval_bool of fairseq relies on it
        raise TypeError(f"wanted a text, got {text!r}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise UsageError(f"fairseq option: got '{text[:80]}', wanted a literal, such as (0.9, 0.98)") from None


def are_betas(text: str) -> bool:
    """Whether Adam takes for its betas what fairseq reads in ``text``."""
    pair = literal(text)
    numbers = isinstance(pair, tuple | list) and all(isinstance(beta, int | float) for beta in pair)
    return numbers and len(pair) == 2 and all(0 <= beta < 1 for beta in pair)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _value(node.left) + _value(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _value(node.left), _value(node.right)
        for items, times in ((left, right), (right, left)):
            if hasattr(items, "__len__") and isinstance(times, int) and len(items) * times > _MOST_ITEMS:
                raise ValueError(f"more than {_MOST_ITEMS} items")
        return left * right
    return ast.literal_eval(node)
