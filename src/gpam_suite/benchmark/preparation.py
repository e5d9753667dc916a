"""Kind "prepare": raw text to binary data, beside the same steps by the libraries' own commands, one after another.

Contender ``libraries``: ``sacremoses tokenize`` for each file, ``subword-nmt learn-bpe``, ``subword-nmt apply-bpe`` for
each file, ``python -m gpam_fairseq preprocess``, each in a process of its own with its default of one worker. Contender
``pipeline-2``: :func:`gpam_suite.data.prepare` with two processes, called in a fresh one with nothing left from before.
A contender whose dictionaries or binary data differ in a byte from the libraries' gets no time.

Facts: ``tokens`` (Moses tokens of the training text), ``peak_bytes`` (of the pipeline's own process) and
``peak_bytes_doubled`` (of the same text twice: memory grows with the different words of a text, not with its length).
"""

import filecmp
import functools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gpam_suite.benchmark.comparison import Contender
from gpam_suite.benchmark.settings import Settings
from gpam_suite.configuration import CONFIGS
from gpam_suite.data.options import SPLITS, sides
from gpam_suite.data.sources import open_source
from gpam_suite.data.stages import Stages
from gpam_suite.data.text import file_name
from gpam_suite.data.workers import Workers

_PREPARE = (
    "import json, sys; from gpam_suite.data import prepare; "
    "prepare(*map(json.loads, sys.argv[1:])); "
    "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
)


@dataclass(frozen=True)
class Case:
    """``dataset`` (a name in ``configs/dataset``), ``merges`` of the byte pair encoding, most ``lines`` of training."""

    dataset: str
    merges: int
    lines: int | None = None


def contenders(shape: Mapping[str, Any], settings: Settings) -> Mapping[str, Callable[[], Contender]]:
    """The libraries' commands, the pipeline with ``settings.threads`` processes, and with one."""
    case = Case(**shape)

    @functools.cache
    def prepared() -> tuple[Path, dict[str, Any], int, Path]:
        folder = Path(tempfile.mkdtemp(prefix="gpam-preparation-"))
        node = texts(case, folder / "raw")
        wanted = by_libraries(node, case.merges, folder / "libraries")
        tokens = sum(
            len(line.split())
            for path in (folder / "libraries").glob("tok.train*")
            for line in path.open(encoding="utf-8")
        )
        return folder, node, tokens, wanted

    def pipeline(workers: int) -> Contender:
        folder, node, tokens, wanted = prepared()
        work = functools.partial(by_pipeline, node, case.merges, folder / f"pipeline-{workers}", workers)
        peak = work()[1]
        doubled = by_pipeline(twice(node, folder / "twice"), case.merges, folder / "doubled", workers)[1]
        facts = {"tokens": tokens, "peak_bytes": peak, "peak_bytes_doubled": doubled}
        return Contender(f"pipeline-{workers}", work, lambda: differing(work()[0], wanted), facts=facts)

    def libraries() -> Contender:
        folder, node, tokens, _ = prepared()
        work = functools.partial(by_libraries, node, case.merges, folder / "libraries")
        return Contender("libraries", work, lambda: 0.0, facts={"tokens": tokens})

    numbers = sorted({1, settings.threads}, reverse=True)
    return {"libraries": libraries} | {f"pipeline-{number}": functools.partial(pipeline, number) for number in numbers}


def texts(case: Case, folder: Path) -> dict[str, Any]:
    """The raw text of the case's data set as a user's own files in ``folder``; returns their node."""
    folder.mkdir(parents=True)
    dataset = OmegaConf.to_container(OmegaConf.load(CONFIGS / "dataset" / f"{case.dataset}.yaml"))
    if case.dataset == "python_docs":
        dataset["words"] = "raw"  # text as written: words apart from punctuation is the tokeniser's work
    paths = {"data": folder / "had", "mirror": os.environ.get("GPAM_MIRROR")}
    with Workers(1) as workers:
        raw = open_source(dataset, paths).raw(Stages(folder / "had", workers), dataset)
    for split in SPLITS:
        for language in sides(dataset):
            (part,) = raw.parts[split, language]
            with part.source.path.open("rb") as source, (folder / f"{split}.{language or 'txt'}").open("wb") as target:
                for number, line in enumerate(source):
                    if split == "train" and number == case.lines:
                        break
                    target.write(line)
    shutil.rmtree(folder / "had")
    node = {"name": "text", "task": dataset["task"], "kind": "local", "folder": str(folder)}
    return node | {key: dataset[key] for key in ("source", "target") if key in dataset}


def twice(node: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same text with its training part two times."""
    if not folder.is_dir():
        shutil.copytree(node["folder"], folder)
        for path in folder.glob("train.*"):
            path.write_bytes(path.read_bytes() * 2)
    return {**node, "folder": str(folder)}


def by_pipeline(node: Mapping[str, Any], merges: int, data: Path, workers: int) -> tuple[Path, int]:
    """The preparation by this suite, from nothing; returns its folder of binary data and its peak in bytes."""
    shutil.rmtree(data, ignore_errors=True)
    options = {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_size": merges}
    words = [json.dumps(part) for part in (node, options, {"data": str(data), "workers": workers})]
    said = _call([sys.executable, "-c", _PREPARE, *words], stdout=subprocess.PIPE)
    (folder,) = data.glob("text-*")
    return folder / "bin", int(said.split()[-1]) * 1024


def by_libraries(node: Mapping[str, Any], merges: int, folder: Path) -> Path:
    """The same by the libraries' commands; returns the folder of binary data."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commands, languages = Path(sys.executable).parent, sides(node)
    keys = [(split, language) for split in SPLITS for language in languages]
    names = {key: file_name(*key).removesuffix(".txt") for key in keys}
    for (split, language), name in names.items():
        command = [commands / "sacremoses", "-l", language or "en", "-j", "1", "-q", "tokenize"]
        _filter(command, Path(node["folder"]) / f"{split}.{language or 'txt'}", folder / f"tok.{name}")
    with (folder / "together").open("wb") as together:
        for language in languages:
            together.write((folder / f"tok.{names['train', language]}").read_bytes())
    _filter([commands / "subword-nmt", "learn-bpe", "-s", str(merges)], folder / "together", folder / "codes")
    for name in names.values():
        _filter([commands / "subword-nmt", "apply-bpe", "-c", folder / "codes"], folder / f"tok.{name}", folder / name)
    command = [sys.executable, "-m", "gpam_fairseq", "preprocess", "--destdir", folder / "bin"]
    command += [word for split in SPLITS for word in (f"--{split}pref", folder / split)]
    command += ["--only-source"] if languages == (None,) else ["-s", languages[0], "-t", languages[1]]
    _call(command)
    return folder / "bin"


def differing(ours: Path, theirs: Path) -> float:
    """0 where every file of ``ours`` is, byte for byte, the one of ``theirs``; else infinity."""
    names = [path.name for path in ours.iterdir()]
    same, *_ = filecmp.cmpfiles(ours, theirs, names, shallow=False)
    return 0.0 if names and sorted(same) == sorted(names) else math.inf


def _filter(command: Sequence[Any], source: Path, target: Path) -> None:
    with source.open("rb") as text, target.open("wb") as result:
        _call(command, stdin=text, stdout=result)


def _call(command: Sequence[Any], **streams: Any) -> str:
    streams.setdefault("stdout", subprocess.DEVNULL)
    ended = subprocess.run(list(map(str, command)), stderr=subprocess.PIPE, check=False, **streams)
    if ended.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: {ended.stderr.decode().strip().rpartition(chr(10))[2]}")
    return (ended.stdout or b"").decode()
