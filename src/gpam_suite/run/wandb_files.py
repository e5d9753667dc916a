"""What of a run is in wandb beside its numbers, and reading it back: the run's folder, from wandb alone.

The files of a run's record go into the artifact ``record-<hash>`` and into the folder ``record`` among the run's files,
which an offline run keeps on disk.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.records.folder import HISTORY, HYPOTHESES, RECORD, SCORES, Record, read_record, read_scores
from gpam_suite.report.figures import plots
from gpam_suite.report.plotting import render
from gpam_suite.stats.aggregate import aggregate

ONLINE = "wandb:"
ARTIFACT = "record"  # its type, the start of its name, and the folder among a run's files
MOST_LINES = 1000  # of the test set in a table of wandb's
_FILES = (RECORD, "config.yaml", HISTORY, SCORES, HYPOTHESES)


def publish(run: Any, folder: Path) -> None:
    """Log a recorded run's test set as a table, its figures, and its files."""
    import wandb

    record, copies = read_record(folder), Path(run.dir) / ARTIFACT
    copies.mkdir(parents=True, exist_ok=True)
    artifact = wandb.Artifact(f"{ARTIFACT}-{record['config_hash']}", type=ARTIFACT, description=record["command"])
    for name in _FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, copies / name)
            artifact.add_file(str(copies / name))
    run.save(str(copies / "*"), base_path=run.dir, policy="end")
    run.log_artifact(artifact)
    if scores := read_scores(folder):
        columns = list(scores[0])
        data = [[_cell(row.get(column)) for column in columns] for row in scores[:MOST_LINES]]
        run.log({"test/scores": wandb.Table(columns=columns, data=data)})
    for plot, png in _figures(record, copies.parent):
        run.log({f"figures/{plot}": wandb.Image(str(png))})


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _figures(record: Record, folder: Path) -> list[tuple[str, Path]]:
    found = []
    for plot in plots(aggregate([record])) if record["status"] == "finished" else []:
        path = folder / f"{plot.name}.png"
        path.write_bytes(render(plot, "png"))
        found.append((plot.name, path))
    return found


# ----------------------------------------------------------------------------------------------------- reading back


def tracked_folder(given: str, api: Any = None) -> Path | None:
    """The folder with the record of a run in wandb; None where ``given`` names none.

    Args:
        given: the folder of an offline run (``.../wandb/offline-run-...``), or ``wandb:<entity>/<project>/<run id>``.
        api: what stands for ``wandb.Api()``.

    Raises:
        UsageError: no such run, or it has no record.
    """
    if given.startswith(ONLINE):
        return _download(given.removeprefix(ONLINE), api)
    folder = Path(given)
    if not given or not any(folder.glob("run-*.wandb")):
        return None
    if (folder / "files" / ARTIFACT / RECORD).is_file():
        return folder / "files" / ARTIFACT
    if (folder.parent.parent / RECORD).is_file():  # where training wrote it: <run>/wandb/offline-run-...
        return folder.parent.parent
    raise UsageError(
        f"{folder}: this run of wandb's has no record, so it ended before its training did; train it again"
    )


def _download(path: str, api: Any) -> Path:
    import wandb

    if path.count("/") != 2:
        raise UsageError(f"got {ONLINE}{path}, wanted {ONLINE}<entity>/<project>/<run id>")
    try:
        found = [one for one in (api or wandb.Api()).run(path).logged_artifacts() if one.type == ARTIFACT]
    except (wandb.errors.CommError, wandb.errors.UsageError, ValueError) as error:
        raise UsageError(f"wandb gives no run {path}: {' '.join(str(error).split())}") from None
    if not found:
        raise UsageError(f"the run {path} has no artifact of type '{ARTIFACT}': it ended before its training did")
    folder = Path(tempfile.mkdtemp(prefix="gpam-wandb-"))
    found[-1].download(root=str(folder))
    return folder
