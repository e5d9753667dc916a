"""Memory of long trainings and of long sweeps: it must not grow."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from runs import run_here, tiny, train_here

from gpam_suite.common.places import ROOT
from soak.parts import Figures

_HERE = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
import soak.memory
soak.memory.{function}(Path(sys.argv[3]), int(sys.argv[4]))
"""


def written() -> int:
    """Bytes that this process has written and holds; what it has read of libraries comes and goes with the machine."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kilobytes = re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+) kB", status, re.MULTILINE)
    return sum(int(one) << 10 for one in kilobytes)


def grown(function: str, count: int, limit: int) -> Figures:
    """Growth in bytes from the first tenth to the end of what ``function`` does ``count`` times in a new process.

    Raises:
        AssertionError: more than ``limit`` bytes.
    """
    with tempfile.TemporaryDirectory() as folder:
        tests = ROOT / "tests"
        command = [sys.executable, "-c", _HERE.format(function=function), str(tests), str(tests / "gpam_suite")]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
        ended = subprocess.run(
            [*command, folder, str(count)], env=variables, capture_output=True, text=True, check=False
        )
        assert not ended.returncode, ended.stderr[-2000:]
        sizes = json.loads(ended.stdout.splitlines()[-1])
    begun = max(5, len(sizes) // 10)  # libraries take their time to have loaded everything
    growth = max(sizes[begun:]) - sizes[begun]
    assert growth <= limit, f"{growth:,} bytes more in the end than after a tenth: {sizes[:: max(1, len(sizes) // 20)]}"
    return {"count": count, "mebibytes": round(sizes[-1] / 2**20), "growth": round(growth / 2**20, 1)}


def updates() -> Figures:
    """10,000 updates of a language model with trainable lambdas, checked every 100."""
    return grown("train", 10_000, limit=8 << 20)


def members() -> Figures:
    """100 members of a sweep, prepared, trained, evaluated and recorded one after another in one process."""
    return grown("sweep", 100, limit=8 << 20)


def train(base: Path, count: int) -> None:
    """Prints the memory at every hundredth of ``count`` updates."""
    import gpam_fairseq  # noqa: F401, I001  (before fairseq)
    from fairseq.trainer import Trainer

    from gpam_suite.run.outcomes import CHECK_EVERY

    os.environ[CHECK_EVERY] = "100"
    sizes, stock = [], Trainer.train_step

    def train_step(trainer: Trainer, *args: object, **kwargs: object) -> object:
        found = stock(trainer, *args, **kwargs)
        if trainer.get_num_updates() % (count // 100) == 0:
            sizes.append(written())
        return found

    Trainer.train_step = train_step
    often = [f"++fairseq.dataset.validate_interval_updates={count // 10}"]
    often += [f"++fairseq.checkpoint.save_interval_updates={count // 10}"]
    length = [f"++fairseq.optimization.max_update={count}", "++fairseq.common.log_interval=20"]
    train_here(tiny(base, "model=dagpam_trainable", *length, *often))
    print(json.dumps(sizes))


def sweep(base: Path, count: int) -> None:
    """Prints the memory after each of ``count`` members, whose workers are this process itself for once."""
    sizes = []
    for seed in range(count):
        run_here(tiny(base, "model=dagpam", f"seed={seed}"))
        sizes.append(written())
    print(json.dumps(sizes))
