"""One seed trained again and again in one process, with different numbers of data workers."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from runs import tiny, train_here

from soak.bits import compared, differences
from soak.kills import LONGER
from soak.parts import Figures

OTHER_SEED = "seed=2"


def equal_runs(task: str, base: Path, workers: Iterable[int]) -> list[Path]:
    """Folders of one seed's runs, one for each number of workers, and one with another seed."""
    folders = []
    for number, (count, seed) in enumerate([*((count, "seed=1") for count in workers), (0, OTHER_SEED)]):
        own = [f"++fairseq.dataset.num_workers={count}", seed, f"experiment_name=run{number}"]
        folders.append(train_here(tiny(base, *LONGER, *own, task=task)))
    return folders


def soak() -> Figures:
    """Both tasks with 0, 1, 2, 4 and 8 data workers, and once more with none."""
    figures = {"runs": 0, "workers": "0, 1, 2, 4 and 8", "parameters": 0}
    for task in ("lm", "nmt"):
        with tempfile.TemporaryDirectory() as folder:
            first, *others, _ = equal_runs(task, Path(folder), (0, 1, 2, 4, 8, 0))
            for other in others:
                found = differences(first, other, records=False)
                assert not found, f"{task}: {found}"
            figures["runs"] += 1 + len(others)
            figures["parameters"] += compared(first)["parameters"]
    return figures
