"""The file readers under atheris, which keeps the inputs that reach new branches and changes those.

``python -m fuzzing.guided TARGET CASES`` is one reader in a process of its own, which libFuzzer ends; :func:`guide`
starts it and reads how many cases there were.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fuzzing.target import memory_folder
from gpam_suite.common.places import ROOT

CASES = {
    "text": 32_000,
    "packed text": 4_000,
    "dictionary": 22_000,
    "BPE codes": 8_000,
    "archives": 5_000,
    "records": 5_000,
    "histories and scores": 20_000,
    "stored configurations": 2_000,
    "checkpoints": 1_000,
}
"""Reader to the cases of ``make soak``: together with those of ``full.py`` more than 100,000."""
_SEED = 1
_INSTALLED = importlib.util.find_spec("atheris") is not None
NOT_INSTALLED = "" if _INSTALLED else "atheris is not installed (make setup EXTRAS=test,fuzz; it has wheels for Linux)"


def guide(name: str, cases: int) -> int:
    """Run ``cases`` cases of a reader; returns how many there were.

    Raises:
        AssertionError: one broke the promise; the text says which.
    """
    command = [sys.executable, "-m", "fuzzing.guided", name, str(cases)]
    roots = [ROOT / "tests", ROOT / "tests" / "gpam_suite", ROOT / "src"]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
    with memory_folder() as folder:
        ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    said = re.search(r"Done (\d+) runs", ended.stdout + ended.stderr)
    if ended.returncode or said is None:
        raise AssertionError(f"{name}: {_told(ended.stdout + ended.stderr)}")
    return int(said[1])


def _told(printed: str) -> str:
    """What of libFuzzer's output says why it ended: the traceback, and the case."""
    return printed[max(printed.find("Traceback"), 0) :][:6000]


def reader(name: str) -> tuple[Callable[[bytes, Path], None], tuple[bytes, ...]]:
    """The check of one reader's bytes, and valid files to begin with."""
    from fuzzing import of_archives, of_configs, of_models, of_records, of_text

    if name == "packed text":
        return lambda content, folder: of_text.packed_lines(("gz", content), folder), (of_text.PACKED["gz"],)
    if name == "BPE codes":
        return lambda content, folder: of_text.codes((content, "ein Katzen"), folder), (of_text.CODES,)
    if name == "checkpoints":
        return of_models.checkpoint, of_models.saved(Path("whole"))
    return {
        "text": (of_text.lines, (of_text.TEXT,)),
        "dictionary": (of_text.dictionary, (of_text.DICTIONARY,)),
        "archives": (of_archives.damaged_archive, of_archives.WHOLE),
        "records": (of_records.record_bytes, of_records.WHOLE),
        "histories and scores": (of_records.rows, (of_records.ROWS,)),
        "stored configurations": (of_configs.stored_bytes, (of_configs.YAML,)),
    }[name]


def main() -> None:
    import gpam_fairseq.compat  # noqa: F401  (its seconds are no case's)

    import atheris

    with atheris.instrument_imports(
        include=[
            "gpam_suite.data",
            "gpam_suite.records.folder",
            "gpam_suite.common.strict_json",
            "gpam_suite.config.compose",
        ]
    ):
        check, whole = reader(sys.argv[1])
    corpus, folder = Path("corpus"), Path("parent") / "case"
    for place in (corpus, folder):
        place.mkdir(parents=True)
    for number, content in enumerate(whole):
        (corpus / str(number)).write_bytes(content)
    options = [f"-runs={sys.argv[2]}", f"-seed={_SEED}", "-max_len=8192", "-timeout=60", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], str(corpus), *options], lambda content: check(content, folder))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
