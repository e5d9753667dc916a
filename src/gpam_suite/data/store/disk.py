"""A disk that is full, or a folder that cannot be written, said in one sentence."""

import errno
from pathlib import Path

from gpam.errors import UsageError


def unwritable(folder: Path, error: OSError) -> UsageError:
    """The mistake of a ``paths.data`` that cannot be written."""
    return UsageError(f"paths.data: {folder} cannot be written ({error.strerror}); give another folder")


class DiskFull(UsageError):
    """A disk without room, where no other address can help."""


def is_full(error: OSError) -> bool:
    """Whether a disk, or the user's share of it, has no room left."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def full(folder: Path, what: str) -> DiskFull:
    """The mistake of a disk without room."""
    return DiskFull(f"the disk of {folder} is full ({what}); make room or give another folder (paths.data)")
