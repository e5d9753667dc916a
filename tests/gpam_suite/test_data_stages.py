"""Stages: killed anywhere, the next call goes on; a changed input makes again what depends on it and nothing else."""

import contextlib
import errno
import fcntl
import multiprocessing
import os
import signal
import threading
import time

import pytest
from data_helpers import PLAIN, parallel, preparations
from runs import alive, until

from gpam.errors import UsageError
from gpam_suite.common.lock import locked
from gpam_suite.common.strict_json import summed
from gpam_suite.data import prepare, workers
from gpam_suite.data.kinds import texts
from gpam_suite.data.store import atomic
from gpam_suite.data.store.stages import Stages
from gpam_suite.data.workers import Workers

BPE = PLAIN | {"bpe": "subword_nmt", "bpe_size": 12}


@pytest.fixture
def made(monkeypatch):
    """The names of the stages whose work is done, in order."""
    names = []
    run = Stages.run

    def noted(self, name, made_from, work):
        return run(self, name, made_from, lambda folder: (names.append(name), work(folder))[1])

    monkeypatch.setattr(Stages, "run", noted)
    return names


def test_only_what_depends_on_a_change_is_made_again(tmp_path, made):
    dataset, paths = parallel(tmp_path / "raw"), {"data": tmp_path / "data"}
    first = prepare(dataset, BPE, paths)
    assert {"read", "select", "tokenise", "count", "learn", "segment", "dictionary", "binarise"} == set(made)
    made.clear()
    (first.folder / "manifest.json").unlink()  # the preparation has to be put together again
    assert prepare(dataset, BPE, paths).manifest["files"] == first.manifest["files"]
    prepare(dataset | {"label": "another label"}, BPE, paths)
    assert made == []
    prepare(dataset, BPE | {"bpe_size": 11}, paths)
    assert set(made) == {"learn", "segment", "count", "dictionary", "binarise"}
    made.clear()
    prepare(dataset, BPE | {"min_count": 30}, paths)
    assert set(made) == {"dictionary", "binarise"}
    made.clear()
    prepare(dataset | {"source": "en", "target": "de"}, BPE, paths)
    assert "tokenise" not in made  # both directions share their text
    made.clear()
    prepare(parallel(tmp_path / "raw", test_en=["another test"] * 20), BPE, paths)  # not what is learnt
    assert sorted(made) == ["binarise", "count", "count", "read", "segment", "select", "tokenise"]


def test_a_text_that_is_edited_while_it_is_read_is_refused(tmp_path, monkeypatch):
    """Else it would be kept under the checksum of the text before."""
    dataset, paths = parallel(tmp_path / "raw"), {"data": tmp_path / "data"}
    opened = texts.open_text

    def edited(path):
        with path.open("a") as file:
            file.write("one more\n")
        return opened(path)

    with monkeypatch.context() as patch:
        patch.setattr(texts, "open_text", edited)
        with pytest.raises(UsageError, match=r"train\.\w+ changed while it was read"):
            prepare(dataset, BPE, paths)


def test_two_processes_that_find_a_stage_damaged_leave_one_whole(tmp_path, monkeypatch):
    """The second looks when the first has put its own there already: what is whole is not taken away again."""
    stage, first, second = (tmp_path / name for name in ("stage", "first", "second"))
    for folder in (stage, first, second):
        folder.mkdir()
        (folder / "whole").write_text(summed({"files": {}, "of": folder.name}))
    (stage / "whole").unlink()
    asked = []
    monkeypatch.setattr(atomic, "locked", lambda folder: asked.append(folder) or locked(folder))
    with locked(tmp_path):
        threads = [threading.Thread(target=atomic.publish, args=(one, stage, "whole")) for one in (first, second)]
        for thread in threads:
            thread.start()
        until(lambda: len(asked) == 2)
        assert not (stage / "whole").exists()  # both wait
    for thread in threads:
        thread.join()
    published = atomic.unchanged(stage, "whole")["of"]
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "stage", "first", "second"} - {published}


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    """Whose process lives is locked; where another one is at work in the folder above, the cleaning waits."""
    left = tmp_path / "stages" / ".x-12345678.tmp"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    with Workers(1) as pool, atomic.unfinished(tmp_path / "stages", "y") as at_work:
        Stages(tmp_path, pool)
        assert at_work.is_dir() and not left.exists()
    assert not at_work.exists()


def test_locks_are_those_of_files_that_are_open_for_writing(tmp_path, monkeypatch):
    """Else NFS has none; what stands in for it here refuses them as it does."""
    flock = fcntl.flock

    def of_nfs(descriptor, operation):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", of_nfs)
    prepared = prepare(parallel(tmp_path / "raw"), BPE, {"data": tmp_path / "data"})
    assert not list(tmp_path.rglob("*.tmp")) and not list(prepared.folder.rglob(".lock"))


def _killed(arguments, stages_until_killed, names):
    """Prepare, and end by SIGKILL after so many stages."""
    publish, made = atomic.publish, []

    def noted(temporary, folder, summary):
        publish(temporary, folder, summary)
        made.append(folder.name)
        names.send(folder.name)
        if len(made) == stages_until_killed:
            os.kill(os.getpid(), signal.SIGKILL)

    atomic.publish = noted
    prepare(*arguments)


def test_killed_again_and_again_it_comes_to_the_same_end(tmp_path):
    """SIGKILL after a little longer each time; what was finished is never made twice, and the result is the same."""
    dataset = parallel(tmp_path / "raw")
    wanted = prepare(dataset, BPE, {"data": tmp_path / "whole"})
    context, seen = multiprocessing.get_context("fork"), []
    for stages_until_killed in (2, 7, None):
        names, sent = context.Pipe(duplex=False)
        arguments = (dataset, BPE, {"data": str(tmp_path / "data")}), stages_until_killed, sent
        process = context.Process(target=_killed, args=arguments)
        process.start()
        sent.close()
        with contextlib.suppress(EOFError):
            while True:
                seen.append(names.recv())
        process.join()
        assert process.exitcode == (0 if stages_until_killed is None else -signal.SIGKILL)
    assert seen[-1] == wanted.folder.name
    assert len(seen) == len(set(seen))
    again = prepare(dataset, BPE, {"data": tmp_path / "data"})
    assert again.manifest["files"] == wanted.manifest["files"]
    assert preparations(tmp_path / "data") == [wanted.folder.name]
    assert not list((tmp_path / "data").rglob("*.tmp"))


def process_number(_):
    return os.getpid()


def _with_workers(text, sent):
    workers.WORTH_IT = 0
    with Workers(2) as pool:
        list(pool.results(process_number, text, "work on it"))
        sent.send(list(pool._pool._processes))
        time.sleep(60)


def test_workers_end_with_a_killed_parent(tmp_path):
    (tmp_path / "text").write_text("a\n")
    context = multiprocessing.get_context("fork")
    got, sent = context.Pipe(duplex=False)
    process = context.Process(target=_with_workers, args=(tmp_path / "text", sent))
    process.start()
    sent.close()  # so that a child that fails is an end, and no silence
    children = got.recv()
    assert len(children) == 2
    process.kill()
    process.join()
    until(lambda: not any(map(alive, children)))


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


def test_no_flipped_bit_of_a_preparation_is_read(tmp_path, made, caplog):
    dataset, paths = parallel(tmp_path / "raw"), {"data": tmp_path / "data"}
    first = prepare(dataset, BPE, paths)
    made.clear()
    for path in sorted(path for path in first.folder.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        spoilt = bytearray(whole)
        spoilt[len(whole) // 2] ^= 4
        path.unlink()  # finished stages share their files with preparations
        path.write_bytes(spoilt)
        caplog.clear()
        assert prepare(dataset, BPE, paths).manifest["files"] == first.manifest["files"]
        assert "is made again" in caplog.text and path.name in caplog.text
        assert path.read_bytes() == whole or path.name == "manifest.json"  # which says how long it took
    assert made == []
    assert preparations(tmp_path / "data") == [first.folder.name]
