"""Every stage shows how far it is: a bar with the time left on a terminal, plain lines elsewhere."""

import io
import logging
import math
import re
import sys

from data_helpers import PLAIN, parallel

from gpam_suite.data import prepare, progress, workers
from gpam_suite.data.kinds import texts
from gpam_suite.data.text import rows
from gpam_suite.data.workers import Workers


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_of(tmp_path, monkeypatch, screen):
    """Work on a text of small chunks while stderr is ``screen``."""
    monkeypatch.setattr(workers, "CHUNK", 1000)
    monkeypatch.setattr(sys, "stderr", screen)
    (tmp_path / "text").write_text("a word and more\n" * 400)
    with Workers(1) as pool:
        list(pool.results(len, tmp_path / "text", "tokenise train.de.txt"))
    return screen.getvalue()


def test_a_terminal_shows_a_bar_with_the_time_left(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    shown = shown_of(tmp_path, monkeypatch, Terminal()).split("\r")
    assert any(re.match(r"tokenise train\.de\.txt: +\d+%\|.*<[\d?]", bar) for bar in shown), shown
    assert not shown[-1].strip()  # it leaves no trace


def test_a_log_file_gets_plain_lines(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    caplog.set_level(logging.INFO)
    assert shown_of(tmp_path, monkeypatch, io.StringIO()) == ""
    shown = [record.getMessage() for record in caplog.records]
    assert len(shown) >= 2
    pattern = r"tokenise train\.de\.txt: \d+ % of 6\.40kB, [\d:?]+ left"
    assert all(re.fullmatch(pattern, line) for line in shown), shown


def test_what_is_not_known_in_advance_is_counted(monkeypatch, caplog):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    caplog.set_level(logging.INFO)
    with progress.progress("unpack corpus", None) as bar:
        bar.update(5000)
    assert "unpack corpus: 5.00kB" in [record.getMessage() for record in caplog.records]


def test_what_ends_soon_shows_nothing(monkeypatch, caplog):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "DELAY", math.inf)  # however slow the machine is
    caplog.set_level(logging.INFO)
    with progress.progress("read", 10) as bar:
        bar.update(10)
    assert screen.getvalue() == "" and not caplog.records


def test_every_stage_has_one(tmp_path, monkeypatch):
    seen = []

    def noted(what, *arguments, **options):
        seen.append(what.split()[0])
        return progress.progress(what, *arguments, **options)

    for module in (texts, rows, workers):
        monkeypatch.setattr(module, "progress", noted)
    options = PLAIN | {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_size": 12}
    prepare(parallel(tmp_path / "raw"), options, {"data": tmp_path / "data", "workers": 1})
    assert set(seen) == {"read", "select", "tokenise", "count", "segment", "binarise"}
