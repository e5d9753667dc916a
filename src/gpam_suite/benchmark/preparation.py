"""Kind "prepare": parallel text to fairseq's binary data, by the suite and by the libraries' own commands.

Both tokenise with Moses, learn joint sub-words on the training text, apply them, build a joined dictionary and write
fairseq's indexed data sets, from the same files. ``suite`` is one command, ``scripts/prepare.py``, with as many
processes as there are threads; ``libraries`` are sacremoses, subword-nmt and fairseq's preprocess with one worker, one
command after another. What they write is the same, byte for byte, or there is no time.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gpam.errors import UsageError
from gpam_suite.benchmark.comparison import Contender
from gpam_suite.benchmark.memory import peak_bytes_of_processes
from gpam_suite.benchmark.settings import Settings
from gpam_suite.config.compose import CONFIGS
from gpam_suite.data import prepare
from gpam_suite.data.options import SPLITS
from gpam_suite.data.text.lines import count_words, file_sha256, read_lines
from gpam_suite.records.environment import ROOT

LARGER = 4  # times the training text, for the memory of a larger corpus
_AS_IT_IS = {"tokenizer": "none", "lowercase": False, "bpe": "none", "joined_dictionary": False}


@dataclass(frozen=True)
class Text:
    """``train.de``, ``train.en``, ``valid.de``, ... in a folder, and how they are prepared."""

    folder: Path
    languages: tuple[str, str]  # source, target
    bpe_size: int

    @property
    def names(self) -> list[str]:
        """Its files, the training text first."""
        return [f"{split}.{language}" for split in SPLITS for language in self.languages]

    def larger(self, folder: Path, times: int) -> "Text":
        """The same in ``folder`` with the training text that many times."""
        for name in self.names:
            _join([self.folder / name] * (times if name.startswith("train.") else 1), folder / name)
        return Text(folder, self.languages, self.bpe_size)


Way = Callable[[Text, Path], dict[str, Path]]  # prepares a text in an empty folder; name to file of what it wrote


def contenders(shape: Mapping[str, Any], settings: Settings) -> Mapping[str, Callable[[], Contender]]:
    """``dataset``: a translation set of ``configs/dataset``; ``bpe_size``: how many merges are learnt."""
    ways: dict[str, Way] = {"libraries": libraries, "suite": lambda *where: suite(*where, settings.threads)}
    wanted: dict[str, str] = {}
    facts: dict[str, int | None] = {}

    def make(name: str) -> Contender:
        try:
            kept, text = raw_text(**shape, paths=settings.paths)
        except UsageError as error:
            return Contender(name, refusal=str(error))

        def run(text: Text = text) -> None:
            with _done(ways[name], text):
                pass

        def error() -> float:
            if not wanted:
                with _done(libraries, text) as files:
                    facts["tokens"] = sum(count_words(read_lines(files[f"bpe/{each}"])) for each in text.names)
                    wanted.update(digests(files))
            if name != "libraries":
                with _done(ways[name], text) as files:
                    refuse_difference(digests(files), wanted)
            return 0.0

        def measure() -> dict[str, int | None]:
            with tempfile.TemporaryDirectory(dir=kept.name) as folder:
                larger = text.larger(Path(folder), LARGER)
                peaks = [peak_bytes_of_processes(lambda of=of: run(of)) for of in (text, larger)]
            return dict(zip(("peak_bytes", "larger_peak_bytes"), peaks, strict=True)) | facts

        return Contender(name, run, error, measure=measure)

    return {name: lambda name=name: make(name) for name in ways}


def raw_text(dataset: str, bpe_size: int, paths: Mapping[str, Any]) -> tuple[tempfile.TemporaryDirectory, Text]:
    """The raw text of a data set in a folder of its own, which is removed with the first of the two."""
    path = CONFIGS / "dataset" / f"{dataset}.yaml"
    if not path.is_file():
        raise UsageError(f"dataset: got '{dataset}', wanted a translation set of configs/dataset")
    prepared = prepare(OmegaConf.load(path), _AS_IT_IS, paths)
    kept = tempfile.TemporaryDirectory()
    text = Text(Path(kept.name), (prepared.source_lang, prepared.target_lang), bpe_size)
    for name in text.names:
        shutil.copyfile(prepared.folder / "text" / f"{name}.txt", text.folder / name)
    return kept, text


def suite(text: Text, output: Path, workers: int) -> dict[str, Path]:
    """One command."""
    source, target = text.languages
    _call(
        [sys.executable, ROOT / "scripts" / "prepare.py"],
        *("dataset=local_parallel", f"dataset.folder={text.folder}"),
        *(f"dataset.source={source}", f"dataset.target={target}"),
        *("preprocessing.tokenizer=moses", "preprocessing.lowercase=false", "preprocessing.min_count=0"),
        *("preprocessing.bpe=subword_nmt", f"preprocessing.bpe_size={text.bpe_size}"),
        *("preprocessing.joined_dictionary=true", f"paths.data={output}", f"paths.workers={workers}"),
    )
    (folder,) = output.glob("local_parallel-*")
    return _files(
        folder / "bpe" / "codes.txt", {name: folder / "bpe" / f"{name}.txt" for name in text.names}, folder / "bin"
    )


def libraries(text: Text, output: Path) -> dict[str, Path]:
    """One command after another, as the recipes that fairseq comes with call them."""
    source, target = text.languages
    commands = Path(sysconfig.get_path("scripts"))
    for name in text.names:
        language = name.partition(".")[2]
        _through([commands / "sacremoses", "-l", language, "tokenize"], text.folder / name, output / f"tok.{name}")
    _join([output / f"tok.train.{language}" for language in text.languages], output / "tok.train")
    bpe, codes = [commands / "subword-nmt"], output / "codes"
    _through([*bpe, "learn-bpe", "-s", text.bpe_size], output / "tok.train", codes)
    for name in text.names:
        _through([*bpe, "apply-bpe", "-c", codes], output / f"tok.{name}", output / name)
    prefixes = [word for split in SPLITS for word in (f"--{split}pref", output / split)]
    _call(
        [sys.executable, "-m", "gpam_fairseq", "preprocess", "--source-lang", source, "--target-lang", target],
        *(*prefixes, "--destdir", output / "bin", "--joined-dictionary", "--workers", 1),
    )
    return _files(codes, {name: output / name for name in text.names}, output / "bin")


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 by name."""
    return {name: file_sha256(path) for name, path in files.items()}


def refuse_difference(got: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise UsageError where two preparations differ in a file."""
    differing = sorted(name for name in got.keys() | wanted.keys() if got.get(name) != wanted.get(name))
    if differing:
        raise UsageError(f"not what the libraries write: {', '.join(differing)}")


@contextmanager
def _done(way: Way, text: Text) -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        yield way(text, Path(folder))


def _files(codes: Path, pieces: Mapping[str, Path], binary: Path) -> dict[str, Path]:
    named = {"codes": codes} | {f"bpe/{name}": path for name, path in pieces.items()}
    kinds = ("*.bin", "*.idx", "dict.*")
    return named | {f"bin/{path.name}": path for kind in kinds for path in sorted(binary.glob(kind))}


def _join(paths: list[Path], target: Path) -> None:
    with target.open("wb") as joined:
        for path in paths:
            with path.open("rb") as file:
                shutil.copyfileobj(file, joined)


def _through(command: list[Any], source: Path, target: Path) -> None:
    with source.open("rb") as given, target.open("wb") as written:
        _call(command, stdin=given, stdout=written)


def _call(command: list[Any], *words: Any, **streams: Any) -> None:
    """Run a command; UsageError with its last words where it fails or is not installed."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL} | streams
    try:
        ended = subprocess.run(list(map(str, [*command, *words])), stderr=subprocess.PIPE, check=False, **streams)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"{Path(command[0]).name} ended with {ended.returncode}: {said[-1] if said else ''}")
