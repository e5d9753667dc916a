"""The benchmark of preparation: one command of the suite's writes what the libraries' commands write, byte by byte."""

import json
import subprocess
import sys
import time
from collections import Counter

import pytest
from data_helpers import ENGLISH, GERMAN, write

from gpam.errors import UsageError
from gpam_suite.benchmark import preparation, processes, record
from gpam_suite.benchmark.comparison import Settings
from gpam_suite.benchmark.page import pages
from gpam_suite.benchmark.processes import call, peak_bytes_of_processes
from gpam_suite.benchmark.run import measure

ODD = {
    "de": [
        "Er sagte: „Das ist's\", Nr. 5 & mehr.",
        "3,5 % von <5> | [x] usw.",
        "über-all  zwei   Räume",
        "z. B. der 2.",
    ],
    "en": ['He said: "That\'s it", No. 5 & more.', "3.5% of <5> | [x] etc.", "every-where  two   spaces", "the U.S."],
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Small text with what Moses escapes and splits, several spaces, abbreviations."""
    files = {}
    for language, lines in (("de", GERMAN), ("en", ENGLISH)):
        files |= {f"train_{language}": lines + ODD[language], f"valid_{language}": lines[:4]}
        files |= {f"test_{language}": [*ODD[language], "unseen: xylophon 東京"]}
    return preparation.Text(write(tmp_path_factory.mktemp("raw"), **files), ("de", "en"), 40)


@pytest.fixture(scope="module")
def wanted(text, tmp_path_factory):
    return preparation.digests(preparation.libraries(text, tmp_path_factory.mktemp("libraries")))


def test_the_suite_writes_what_the_libraries_write(text, wanted, tmp_path):
    """Merges, sub-words, dictionaries, ids and their index."""
    got = preparation.digests(preparation.suite(text, tmp_path, 2))
    assert {name.partition("/")[0] for name in got} == {"codes", "bpe", "bin"} and len(got) == 1 + 6 + 6 + 6 + 2
    preparation.refuse_difference(got, wanted)


def test_a_difference_names_the_file_and_gives_no_time(wanted):
    with pytest.raises(UsageError, match=r"not what the libraries write: bin/dict\.de\.txt, codes$"):
        preparation.refuse_difference({**wanted, "codes": "other", "bin/dict.de.txt": "other"}, wanted)
    with pytest.raises(UsageError, match=r"not what the libraries write: codes$"):
        preparation.refuse_difference({name: of for name, of in wanted.items() if name != "codes"}, wanted)


def test_a_larger_text_repeats_the_training_text_only(text, tmp_path):
    larger = text.larger(tmp_path, 3)
    for name in text.names:
        times = 3 if name.startswith("train") else 1
        assert (larger.folder / name).read_bytes() == (text.folder / name).read_bytes() * times


def test_a_command_that_fails_is_told_in_its_last_words():
    with pytest.raises(UsageError, match="ended with 3: no such thing"):
        call([sys.executable, "-S", "-c", "import sys; print('no such thing', file=sys.stderr); sys.exit(3)"])


def test_text_that_cannot_be_had_is_a_row_that_says_so(tmp_path):
    settings = Settings(threads=1, repeats=1, seed=1, device="cpu", paths={"data": tmp_path, "offline": True})
    rows = measure({"kind": "prepare", "dataset": "multi30k_de_en", "bpe_size": 5}, settings, [])
    assert [row["contender"] for row in rows] == ["libraries", "suite"]
    assert all("could not be had" in row["note"] for row in rows)


def test_the_page_shows_time_memory_and_goals(tmp_path):
    rows = []
    for name, seconds, peak in (("libraries", [10.0, 12.0, 10.0], 300), ("suite", [4.0, 6.0, 4.0], 400)):
        facts = {"tokens": 800_000, "peak_bytes": peak << 20, "larger_peak_bytes": 500 << 20, "error": 0.0}
        rows.append({"contender": name, "note": "", "seconds": seconds, **facts})
    settings = Settings(threads=2, repeats=3, seed=1, device="cpu", paths={"data": "a place on this machine"})
    path = record.write(tmp_path, "prepare_multi30k", "prepare", {"dataset": "multi30k_de_en"}, settings, rows)
    kept = json.loads(path.read_text())
    assert "paths" not in kept["settings"] and "sacremoses" in kept["versions"]
    page = pages(tmp_path)[tmp_path / "README.md"].replace(f" {record.device(kept)} |", "")
    assert "| prepare_multi30k | suite: time to libraries | 0.588 | 0.400 | yes |" in page
    larger = "suite: peak memory with the larger text to suite"
    assert f"| prepare_multi30k | {larger} | 1.10 | 1.25 | no |" in page
    assert "| suite | 4000 [4000, 5000] | 0.40 [0.40, 0.45] | 200000 | 400.0 | 1.33 | 500.0 |" in page


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of processes is read from /proc")
def test_the_peak_is_that_of_all_processes_at_once(monkeypatch):
    """Two processes of 60 MB and 30 MB at a time, and then one of 40 MB, beside one that was there before; each stays
    until it was looked at twice when it held them, however slow the machine."""
    looks, stock = Counter(), processes._proportional_bytes

    def look(process):
        found = stock(process)
        looks[process] += 1
        return found

    monkeypatch.setattr(processes, "_proportional_bytes", look)
    code = "import sys; held = bytearray(b'x') * (int(sys.argv[1]) << 20); print('held', flush=True); sys.stdin.read()"

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    def hold(*sizes):
        processes = [subprocess.Popen([sys.executable, "-S", "-c", code, str(size)], **pipes) for size in sizes]
        assert [process.stdout.readline() for process in processes] == [b"held\n"] * len(sizes)
        before = {process.pid: looks[process.pid] for process in processes}  # some of them of a process half grown
        while any(looks[pid] < seen + 2 for pid, seen in before.items()):
            time.sleep(0.01)
        for process in processes:
            process.communicate()

    def work():
        hold(60, 30)
        hold(40)

    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, "200"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        assert 88 < peak_bytes_of_processes(work) / 2**20 < 145  # an interpreter itself takes some 8 MB
        other.communicate()
