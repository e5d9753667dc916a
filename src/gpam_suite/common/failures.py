"""What stopped a command from outside: a full disk, a limit, a folder that cannot be written or is gone, no memory, a
cluster that takes no jobs."""

import errno
import os

from gpam.errors import in_a_line

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_NOT_WRITABLE += (errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR)
NO_ROOM_OR_RIGHT = _FULL + _NOT_WRITABLE
"""Error numbers that another address, or another attempt, does not help."""
_NO_MEMORY = ("can't allocate memory", "out of memory", "Cannot allocate memory")


def to_mend(error: BaseException | None) -> str | None:
    """One sentence on what the user can mend, where that is why ``error`` was raised; else None.

    torch says what it could not write or allocate by a RuntimeError, so the errors before it are looked at as well.
    """
    while error is not None:
        if told := _full(error):
            return (
                f"the disk is full, or a quota or limit reached ({told}); make room, or choose another folder "
                "(paths.results, paths.data), and start again"
            )
        if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
            return f"no access to {error.filename}: {error.strerror}; choose another folder (paths.results, paths.data)"
        missing = isinstance(error, FileNotFoundError) and os.sep in str(error.filename)  # no program, by its name
        if missing or (isinstance(error, OSError) and "not found" in str(error)):
            return f"a file is gone while it was needed ({in_a_line(error)}); start again to go on"
        if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
            return (
                "there is not enough memory, or a limit of it is reached; free some, or take less at a time (JOBS, "
                "fairseq.dataset.max_tokens), and start again"
            )
        if type(error).__name__ == "TerminatedWorkerError":  # joblib's
            return "a process of the multirun was killed, perhaps as memory ran out: give fewer (hydra.launcher.n_jobs)"
        if str(error).startswith("sbatch: "):  # submitit passes on what it printed
            return f"SLURM did not take the jobs ({in_a_line(error)}); mend that, and start again"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def _full(error: BaseException) -> str | None:
    """What is said of a full disk; libraries in Rust (safetensors) have errors of their own for it."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"{error.strerror}, {error.filename}" if error.filename else error.strerror
    return in_a_line(error) if any(f"(os error {code})" in str(error) for code in _FULL) else None
