"""Stages: killed anywhere, the next call goes on; a changed input makes again what depends on it and nothing else."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from data_helpers import PLAIN, monolingual, parallel, preparations

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.store import atomic
from gpam_suite.data.store.stages import Stages, load
from gpam_suite.data.workers import Workers

BPE = PLAIN | {"bpe": "subword_nmt", "bpe_size": 12}


@pytest.fixture
def made(monkeypatch):
    """The names of the stages whose work is done, in order."""
    names = []
    run = Stages.run

    def noted(self, name, version, made_from, work):
        return run(self, name, version, made_from, lambda folder: (names.append(name), work(folder))[1])

    monkeypatch.setattr(Stages, "run", noted)
    return names


def test_each_stage_is_made_once(tmp_path, made):
    dataset, paths = parallel(tmp_path / "raw"), {"data": tmp_path / "data"}
    first = prepare(dataset, BPE, paths)
    assert {"read", "select", "tokenise", "count", "learn", "segment", "dictionary", "binarise"} == set(made)
    made.clear()
    (first.folder / "manifest.json").unlink()  # the preparation has to be put together again
    assert prepare(dataset, BPE, paths).manifest["files"] == first.manifest["files"]
    assert made == []


def test_only_what_depends_on_a_change_is_made_again(tmp_path, made):
    paths = {"data": tmp_path / "data"}
    prepare(parallel(tmp_path / "raw"), BPE, paths)
    made.clear()
    prepare(parallel(tmp_path / "raw", test_en=["another test"] * 20), BPE, paths)  # not what is learnt
    assert made == ["read", "select", "tokenise", "segment", "count", "count", "binarise"]
    made.clear()
    prepare(parallel(tmp_path / "raw"), BPE | {"bpe_size": 11}, paths)
    assert set(made) == {"learn", "segment", "count", "dictionary", "binarise"}
    made.clear()
    prepare(parallel(tmp_path / "raw"), BPE | {"min_count": 30}, paths)
    assert set(made) == {"dictionary", "binarise"}
    made.clear()
    prepare(parallel(tmp_path / "raw") | {"label": "another label"}, BPE, paths)
    assert made == []


def test_both_directions_share_their_text(tmp_path, made):
    dataset, paths = parallel(tmp_path / "raw"), {"data": tmp_path / "data"}
    options = PLAIN | {"tokenizer": "moses"}
    prepare(dataset, options, paths)
    made.clear()
    prepare(dataset | {"source": "en", "target": "de"}, options, paths)
    assert "tokenise" not in made and "binarise" not in made


def test_a_damaged_stage_is_made_again(tmp_path, made):
    dataset, paths = monolingual(tmp_path / "raw"), {"data": tmp_path / "data"}
    first = prepare(dataset, PLAIN, paths)
    (stage,) = (tmp_path / "data" / "stages").glob("dictionary-*")
    made.clear()
    (stage / "dict.txt").write_bytes(b"")  # the preparation's own file is the same one
    assert load(stage) is None
    second = prepare(dataset, PLAIN, paths)
    assert made == ["dictionary"]
    assert second.manifest["files"] == first.manifest["files"]


def test_two_processes_that_find_a_stage_damaged_leave_one_whole(tmp_path, monkeypatch):
    """The second looks while the first has put its own there already: what is whole is not taken away again."""
    data = tmp_path / "data"
    prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": data})
    (stage,) = (data / "stages").glob("dictionary-*")
    (stage / "stage.json").write_text("{}")
    first, second = (data / "stages" / name for name in ("first", "second"))
    for folder in (first, second):
        shutil.copytree(stage, folder)
    looks = []

    def finished(folder):
        looks.append((folder / "whole").exists())
        return looks[-1]

    for folder in (first, second):
        (folder / "whole").write_text(folder.name)
    assert atomic.publish(first, stage, finished) and not atomic.publish(second, stage, finished)
    assert looks == [False, True] and (stage / "whole").read_text() == "first"

    taken, made = os.replace, []

    def slow(source, target):  # a third, while the fourth waits for it
        other = threading.Thread(target=lambda: made.append(atomic.publish(second, stage, finished)))
        others.append(other)
        other.start()
        other.join(0.2)
        assert not made
        taken(source, target)

    others = []
    (stage / "whole").unlink()
    shutil.copytree(second, first)
    monkeypatch.setattr(atomic.os, "replace", slow)
    assert atomic.publish(first, stage, finished)
    others[0].join()
    assert made == [False] and (stage / "whole").exists()


def test_a_stage_of_an_earlier_version_is_made_again_and_called_so(tmp_path, made, caplog):
    dataset, paths = monolingual(tmp_path / "raw"), {"data": tmp_path / "data"}
    first = prepare(dataset, PLAIN, paths)
    (stage,) = (tmp_path / "data" / "stages").glob("dictionary-*")
    for path in (stage / "stage.json", first.folder / "manifest.json"):
        summary = json.loads(path.read_text())
        del summary["sha256"]
        path.write_text(json.dumps(summary))
    made.clear()
    assert prepare(dataset, PLAIN, paths).manifest["files"] == first.manifest["files"]
    assert made == ["dictionary"]
    assert caplog.text.count("it has no checksum of its own, as an earlier version wrote it") >= 2
    assert "changed" not in caplog.text


def test_what_a_killed_process_left_is_removed(tmp_path):
    code = (
        "import sys, os; from pathlib import Path; from gpam_suite.data.store.atomic import unfinished\n"
        "with unfinished(Path(sys.argv[1]), 'x') as folder:\n"
        "    (folder / 'half').write_text('half')\n"
        "    print(folder, flush=True); os.kill(os.getpid(), 9)"
    )
    (tmp_path / "stages").mkdir()
    killed = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "stages"], capture_output=True, text=True, check=False
    )
    left = killed.stdout.strip()
    assert killed.returncode == -9 and os.path.isdir(left)
    with Workers(1) as workers:
        Stages(tmp_path, workers)
    assert not os.path.exists(left)


@pytest.mark.parametrize("moment", ["open", "flock"])
def test_a_new_folder_that_another_process_took_for_abandoned_is_made_again(tmp_path, monkeypatch, moment):
    """The other one cleans up between the making of the folder and its lock."""
    module = {"open": atomic.os, "flock": atomic.fcntl}[moment]
    once, taken = [getattr(module, moment)], []

    def between(*arguments, **options):
        if not taken:
            taken.extend(tmp_path.glob(".*.tmp"))
            for folder in taken:
                folder.rmdir()
        return once[0](*arguments, **options)

    monkeypatch.setattr(module, moment, between)
    with atomic.unfinished(tmp_path, "x") as folder:
        assert taken == [folder] and folder.is_dir()
    assert not folder.exists()


def test_killed_again_and_again_it_comes_to_the_same_end(tmp_path):
    """SIGKILL after a little longer each time; what was finished is never made twice, and the result is the same."""
    dataset = parallel(tmp_path / "raw")
    wanted = prepare(dataset, BPE, {"data": tmp_path / "whole"})
    code = (
        "import json, sys, time; from gpam_suite.data import prepare; from gpam_suite.data.store import stages\n"
        "publish = stages.publish\n"
        "def slow(*arguments):\n"
        "    made = publish(*arguments); print('made', arguments[1].name, flush=True); time.sleep(0.02); return made\n"
        "stages.publish = slow\n"
        "print(prepare(*map(json.loads, sys.argv[1:])).folder.name, flush=True)"
    )
    words = [json.dumps(part) for part in (dataset, BPE, {"data": str(tmp_path / "data")})]
    seen, ended = [], False
    for stages_until_killed in [2, 7, None]:
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True)
        for number, line in enumerate(process.stdout, start=1):
            if line.startswith("made"):
                seen.append(line.split()[1])
            else:
                ended = line.strip() == wanted.folder.name
            if number == stages_until_killed:
                process.send_signal(signal.SIGKILL)
                break
        process.communicate()
    assert ended
    assert len(seen) == len(set(seen))
    again = prepare(dataset, BPE, {"data": tmp_path / "data"})
    assert again.manifest["files"] == wanted.manifest["files"]
    assert preparations(tmp_path / "data") == [wanted.folder.name]
    assert not list((tmp_path / "data").rglob("*.tmp"))


def test_workers_end_with_a_killed_parent(tmp_path):
    code = (
        "import os, sys, time; from pathlib import Path; from gpam_suite.data import workers\n"
        "workers.WORTH_IT = 0\n"
        "def task():\n"
        "    return lambda lines: os.getpid()\n"
        "with workers.Workers(2) as pool:\n"
        "    list(pool.results((task, ()), Path(sys.argv[1]), 'work on it'))\n"
        "    print(*pool._pool._processes, flush=True); time.sleep(60)"
    )
    (tmp_path / "text").write_text("a\n")
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "text"], stdout=subprocess.PIPE, text=True)
    children = list(map(int, process.stdout.readline().split()))
    assert len(children) == 2
    process.kill()
    process.communicate()
    for _ in range(100):
        if not any(map(_alive, children)):
            break
        time.sleep(0.1)
    assert not any(map(_alive, children))


def _alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("name", ["tokenise", "segment", "count", "dictionary", "binarise"])
def test_a_stage_that_was_changed_in_place_is_made_again(tmp_path, made, name):
    """Every file of a stage, its summary too, with one bit flipped: of the same length, at the same place."""
    dataset, paths = parallel(tmp_path / "raw"), {"data": tmp_path / "data"}
    first = prepare(dataset, BPE, paths)
    stage = next((tmp_path / "data" / "stages").glob(f"{name}-*"))
    for path in sorted(stage.iterdir()):
        whole = path.read_bytes()
        spoilt = bytearray(whole)
        spoilt[len(whole) // 2] ^= 1
        path.write_bytes(spoilt)  # a preparation's own file is the same one
        (first.folder / "manifest.json").unlink()
        made.clear()
        assert prepare(dataset, BPE, paths).manifest["files"] == first.manifest["files"]
        assert made == [name]
        assert path.read_bytes() == whole


def test_no_flipped_bit_of_a_preparation_is_read(tmp_path):
    dataset, paths = parallel(tmp_path / "raw"), {"data": tmp_path / "data"}
    first = prepare(dataset, BPE, paths)
    for path in sorted(path for path in first.folder.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        spoilt = bytearray(whole)
        spoilt[len(whole) // 2] ^= 4
        path.unlink()  # finished stages share their files with preparations
        path.write_bytes(spoilt)
        if path.name == "manifest.json":  # without it nothing is known of the others
            assert prepare(dataset, BPE, paths).manifest["files"] == first.manifest["files"]
        else:
            with pytest.raises(UsageError, match=f"{path.name} was changed after it was prepared"):
                prepare(dataset, BPE, paths)
            path.write_bytes(whole)
