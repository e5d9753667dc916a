"""Functions of other packages with ours in their place, for as long as a block runs."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, **replacements: Any) -> Iterator[None]:
    """While this holds, the attributes of ``owner`` (a class or a module that has them itself) are ``replacements``."""
    before = {name: vars(owner)[name] for name in replacements}
    for name, replacement in replacements.items():
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(owner, name, original)
