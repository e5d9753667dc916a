"""Work spread over processes gives what work in one process gives, whatever the chunks, and its memory stays flat."""

import json
import subprocess
import sys

import pytest
from data_helpers import PLAIN, monolingual, parallel, write

from gpam.errors import UsageError
from gpam_suite.data import prepare, workers
from gpam_suite.data.text.lines import wikitext_documents
from gpam_suite.data.workers import BadLine, Workers

LINES = [f"{number % 500} {' '.join('abcdefghij'[number % 7 :])} ." for number in range(20_000)]


def strict(lines):
    if "bad" in lines:
        raise BadLine(lines.index("bad") + 1, "it is bad")
    return 0


@pytest.fixture(params=[1, 3])
def pool(request, monkeypatch):
    """One process, or three; chunks are small."""
    monkeypatch.setattr(workers, "CHUNK", 100)
    monkeypatch.setattr(workers, "WORTH_IT", 0)
    with Workers(request.param) as started:
        yield started


@pytest.mark.parametrize("lines", [["x"], ["", "x", ""], [f"{n} \u2028é{'x' * (n % 90)}" for n in range(3000)]])
def test_chunks_are_whole_lines_and_the_whole_text(tmp_path, pool, lines):
    write(tmp_path, text=lines)
    found = list(pool.results(list, tmp_path / "text", "join text"))
    assert [line for chunk in found for line in chunk] == lines
    assert len(found) > len(lines) / 10


def test_a_bad_line_is_told_by_its_number_in_the_text(tmp_path, pool):
    write(tmp_path, text=["fine"] * 777 + ["bad"] + ["fine"] * 300)
    with pytest.raises(UsageError, match=r"^train\.txt, line 778: it is bad$"):
        list(pool.results(strict, tmp_path / "text", "judge train.txt"))


def test_a_preparation_is_the_same_with_any_number_of_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "CHUNK", 64)
    monkeypatch.setattr(workers, "WORTH_IT", 128)
    options = PLAIN | {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_size": 12}
    dataset = parallel(tmp_path / "raw")
    one, three = (prepare(dataset, options, {"data": tmp_path / str(n), "workers": n}).manifest for n in (1, 3))
    assert one["files"] == three["files"]


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_does_not_grow_with_the_text(tmp_path):
    """The peak of a preparation, and that of one of twelve times the lines, of the same words, behind it."""
    code = (
        "import json, sys; from gpam_suite.data import prepare\n"
        "for dataset in json.loads(sys.argv[1]):\n"
        "    prepare(dataset, *map(json.loads, sys.argv[2:]))\n"
        "    print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    sets = [monolingual(tmp_path / f"raw{times}", train_txt=LINES * times) for times in (1, 12)]  # 0.6 and 7.5 MB
    options = PLAIN | {"bpe": "subword_nmt", "bpe_size": 10}
    words = map(json.dumps, (sets, options, {"data": str(tmp_path / "data"), "workers": 1}))
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    small, large = (int(line) / 1024 for line in ended.stdout.split())
    assert large - small < 16, (small, large)  # MB; the lines in a list would be 25


def test_documents_begin_at_top_level_headings():
    lines = [" ", " = A = ", " ", "text", " = = B = = ", " ", " = C = ", "no blank line behind", "", " = D = "]
    assert wikitext_documents(lines) == [0, 9]
    assert wikitext_documents(["text"]) == [0]
