"""Kind "prepare": parallel text to fairseq's binary data, by the suite and by the libraries' own commands.

Both tokenise with Moses, learn joint sub-words on the training text, apply them, build a joined dictionary and write
fairseq's indexed data sets, from the same files. ``suite`` is one command, ``scripts/prepare.py``, with as many
processes as there are threads; ``libraries`` are sacremoses, subword-nmt and fairseq's preprocess with one worker, one
command after another. What they write is the same, byte for byte, or there is no time.
"""

import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gpam.errors import UsageError
from gpam_suite.benchmark.comparison import Contender, Maker, Settings
from gpam_suite.benchmark.processes import call, peak_bytes_of_processes
from gpam_suite.config.compose import CONFIGS
from gpam_suite.data import prepare
from gpam_suite.data.options import SPLITS
from gpam_suite.data.text.lines import count_words, file_sha256, read_lines
from gpam_suite.records.environment import ROOT

LARGER = 4  # times the training text, for the memory of a larger corpus
_AS_IT_IS = {"tokenizer": "none", "lowercase": False, "bpe": "none", "joined_dictionary": False}


@dataclass(frozen=True)
class Case:
    """A translation set of ``configs/dataset``, and how many merges are learnt."""

    dataset: str
    bpe_size: int


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


def contenders(shape: Mapping[str, Any], settings: Settings) -> tuple[list[str], Maker]:
    """Of a :class:`Case`."""
    case = Case(**shape)
    ways: dict[str, Way] = {"libraries": libraries, "suite": partial(suite, workers=settings.threads)}
    raw = cache(lambda: raw_text(case, settings.paths))

    @cache
    def wanted() -> tuple[dict[str, str], int]:
        """What the libraries write, and how many tokens that is."""
        with tempfile.TemporaryDirectory() as folder:
            files = libraries(raw()[1], Path(folder))
            tokens = sum(count_words(read_lines(files[f"bpe/{name}"])) for name in raw()[1].names)
            return digests(files), tokens

    def make(name: str) -> Contender:
        kept, text = raw()

        def run(text: Text = text) -> None:
            with tempfile.TemporaryDirectory() as folder:
                ways[name](text, Path(folder))

        def error() -> float:
            right, _ = wanted()
            if name != "libraries":
                with tempfile.TemporaryDirectory() as folder:
                    refuse_difference(digests(ways[name](text, Path(folder))), right)
            return 0.0

        def measure() -> dict[str, int | None]:
            with tempfile.TemporaryDirectory(dir=kept.name) as folder:
                larger = text.larger(Path(folder), LARGER)
                peak, larger_peak = (peak_bytes_of_processes(partial(run, of)) for of in (text, larger))
            return {"peak_bytes": peak, "larger_peak_bytes": larger_peak, "tokens": wanted()[1]}

        return Contender(run, error, measure)

    return list(ways), make


def raw_text(case: Case, paths: Mapping[str, Any]) -> tuple[tempfile.TemporaryDirectory, Text]:
    """The raw text of a data set in a folder of its own, which is removed with the first of the two."""
    path = CONFIGS / "dataset" / f"{case.dataset}.yaml"
    if not path.is_file():
        raise UsageError(f"dataset: got '{case.dataset}', wanted a translation set of configs/dataset")
    prepared = prepare(OmegaConf.load(path), _AS_IT_IS, paths)
    kept = tempfile.TemporaryDirectory()
    text = Text(Path(kept.name), (prepared.source_lang, prepared.target_lang), case.bpe_size)
    for name in text.names:
        shutil.copyfile(prepared.folder / "text" / f"{name}.txt", text.folder / name)
    return kept, text


def suite(text: Text, output: Path, workers: int) -> dict[str, Path]:
    """One command."""
    source, target = text.languages
    options = ["dataset=local_parallel", f"dataset.folder={text.folder}", f"dataset.source={source}"]
    options += [f"dataset.target={target}", f"paths.data={output}", f"paths.workers={workers}"]
    wanted = {"tokenizer": "moses", "lowercase": "false", "min_count": 0, "bpe": "subword_nmt"}
    wanted |= {"bpe_size": text.bpe_size, "joined_dictionary": "true"}
    options += [f"preprocessing.{name}={value}" for name, value in wanted.items()]
    call([sys.executable, ROOT / "scripts" / "prepare.py", *options])
    (folder,) = output.glob("local_parallel-*")
    pieces = {name: folder / "bpe" / f"{name}.txt" for name in text.names}
    return _files(folder / "bpe" / "codes.txt", pieces, folder / "bin")


def libraries(text: Text, output: Path) -> dict[str, Path]:
    """One command after another, as the recipes that fairseq comes with call them."""
    source, target = text.languages
    commands = Path(sysconfig.get_path("scripts"))
    moses, bpe, codes = commands / "sacremoses", commands / "subword-nmt", output / "codes"
    for name in text.names:
        _through([moses, "-l", name.partition(".")[2], "tokenize"], text.folder / name, output / f"tok.{name}")
    _join([output / f"tok.train.{language}" for language in text.languages], output / "tok.train")
    _through([bpe, "learn-bpe", "-s", text.bpe_size], output / "tok.train", codes)
    for name in text.names:
        _through([bpe, "apply-bpe", "-c", codes], output / f"tok.{name}", output / name)
    words = [sys.executable, "-m", "gpam_fairseq", "preprocess", "--source-lang", source, "--target-lang", target]
    words += [word for split in SPLITS for word in (f"--{split}pref", output / split)]
    call([*words, "--destdir", output / "bin", "--joined-dictionary", "--workers", 1])
    return _files(codes, {name: output / name for name in text.names}, output / "bin")


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 by name."""
    return {name: file_sha256(path) for name, path in files.items()}


def refuse_difference(got: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise UsageError where two preparations differ in a file."""
    differing = sorted(name for name in got.keys() | wanted.keys() if got.get(name) != wanted.get(name))
    if differing:
        raise UsageError(f"not what the libraries write: {', '.join(differing)}")


def _files(codes: Path, pieces: Mapping[str, Path], binary: Path) -> dict[str, Path]:
    named = {"codes": codes} | {f"bpe/{name}": path for name, path in pieces.items()}
    kinds = ("*.bin", "*.idx", "dict.*")
    return named | {f"bin/{path.name}": path for kind in kinds for path in binary.glob(kind)}


def _join(paths: Iterable[Path], target: Path) -> None:
    with target.open("wb") as joined:
        for path in paths:
            with path.open("rb") as file:
                shutil.copyfileobj(file, joined)


def _through(command: list[Any], source: Path, target: Path) -> None:
    with source.open("rb") as given, target.open("wb") as written:
        call(command, stdin=given, stdout=written)
