"""What the tests of the suite share."""

import io
import os
import runpy
import sys

import pytest

from gpam_suite.common.places import ROOT


@pytest.fixture
def command(monkeypatch, capsys):
    """A script in this process, as what it imports takes seconds in one of its own.

    ``command(name, *words, given=b"")`` gives its exit code, what it printed and what it said on stderr. The
    variables that it sets are afterwards as they were.
    """
    for name, value in {"HYDRA_FULL_ERROR": "0", "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "")}.items():
        monkeypatch.setenv(name, value)

    def called(name: str, *words: object, given: bytes = b"") -> tuple[int, str, str]:
        path = str(ROOT / "scripts" / name)
        monkeypatch.setattr(sys, "argv", [path, *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(path, run_name="__main__")
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return called
