"""wandb, fed from what the run writes to disk. Nothing depends on it: without wandb, account or network runs go on."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gpam_suite.config.compose import identity, overrides_label
from gpam_suite.config.identity import CONFIG
from gpam_suite.records.folder import HYPOTHESES, RECORD
from gpam_suite.records.lines import HISTORY, SCORES, read_history, read_scores

log = logging.getLogger(__name__)
_ARTIFACT = "record"  # its type, the start of its name, and the folder among a run's files
_MOST_LINES = 1000  # of the test set in a table of wandb's
_FILES = (RECORD, CONFIG, HISTORY, SCORES, HYPOTHESES)
MODES = ("auto", "online", "offline", "disabled")
_TAGS = ("dataset", "model", "recipe", "gpu")


def logged_in() -> bool:
    """Whether wandb has credentials of the user; asks nobody."""
    import wandb

    return bool(wandb.login(prompt=False))


def run_name(cfg: DictConfig) -> str:
    """``dagpam lambda_neg=0.25 seed 2``: sorted by name, the seeds of one model stand together."""
    label = overrides_label(cfg)
    return " ".join([cfg.model.name, *([] if label == "default" else [label]), f"seed {cfg.seed}"])


class Tracker:
    """One wandb run for one training run, also where that was stopped and goes on; as a context manager it marks a
    crash as a crash.

    ``tracking.mode``: ``auto`` (what ``WANDB_MODE`` says; without one online where the user is logged in, else
    offline), ``online``, ``offline`` or ``disabled``. Whatever is wrong with wandb costs a warning, and nothing more is
    sent.
    """

    def __init__(self, cfg: DictConfig, folder: Path) -> None:
        self.cfg, self.folder, self.logged, self.run = cfg, folder, 0, None
        self.works = cfg.tracking.mode != "disabled"

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of any kind: none may stop a training run
            if self.works:
                said = str(error).splitlines()[0] if str(error) else type(error).__name__
                log.warning("wandb is off for the rest of this run: %s", said)
            self.works = False

    def __enter__(self) -> "Tracker":
        if not self.works:
            return self
        os.environ.setdefault("WANDB_SILENT", "true")  # read when wandb is first used
        with self._guarded():
            import wandb

            mode = self.cfg.tracking.mode
            if mode == "auto":
                mode = os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline")
            files = self.folder.glob("wandb/*run-*/run-*.wandb")  # their folder's name may end in more than ID
            earlier = sorted(files, key=lambda file: file.parent.name.partition("run-")[2])  # by the time they began
            self.run = wandb.init(
                mode=mode,
                id=earlier[-1].stem.removeprefix("run-") if earlier else None,
                resume="allow" if mode == "online" else None,
                project=self.cfg.tracking.project,
                dir=self.folder,
                group=self.cfg.experiment_name,
                job_type="train",
                name=run_name(self.cfg),
                tags=list(dict.fromkeys([*(self.cfg[node].name for node in _TAGS), *self.cfg.tracking.tags])),
                config=identity(self.cfg),
            )
            self.run.define_metric("update")
            self.run.define_metric("*", step_metric="update")
            if mode == "online" and self.run.resumed:
                self.logged = self.run.starting_step  # a row is a step
            for path in (file.parent for file in earlier) if mode == "offline" else ():
                if path.name.startswith("offline-") and path != Path(self.run.dir).parent:  # named after the second
                    shutil.rmtree(path)  # the new one has the history from its beginning
        return self

    def update(self) -> None:
        """Send the rows of the history that were not sent yet."""
        if not self.works:
            return
        with self._guarded():
            rows = read_history(self.folder)
            for row in rows[self.logged :]:
                values = {f"{row['split']}/{key}": value for key, value in row.items() if isinstance(value, float)}
                self.run.log({**values, "update": row["update"]})
            self.logged = max(self.logged, len(rows))  # a killed run goes on with fewer rows than it had sent

    def finish(self, record: dict[str, Any]) -> None:
        """The record's metrics, parameters, speed and memory as summary; scores as a table, its files as artifact."""
        self.update()
        if not self.works:
            return
        with self._guarded():
            for group in ("metrics", "parameters", "speed", "memory"):
                for key, value in record[group].items():
                    self.run.summary[f"{group}/{key}"] = value
            self.run.summary["status"], self.run.summary["reason"] = record["status"], record["reason"]
            _publish(self.run, self.folder, record)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        if self.run is not None:
            with self._guarded():
                failed = kind is not None or self.run.summary.get("status") != "finished"
                self.run.finish(exit_code=1 if failed else 0)


def _publish(run: Any, folder: Path, record: dict[str, Any]) -> None:
    """Log a recorded run's test set as a table, and its files."""
    import wandb

    copies = Path(run.dir) / _ARTIFACT
    copies.mkdir(parents=True, exist_ok=True)
    artifact = wandb.Artifact(f"{_ARTIFACT}-{record['config_hash']}", type=_ARTIFACT, description=record["command"])
    for name in _FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, copies / name)
            artifact.add_file(str(copies / name))
    run.save(str(copies / "*"), base_path=run.dir, policy="end")
    run.log_artifact(artifact)
    if scores := read_scores(folder):
        columns = list(scores[0])
        data = [[_cell(row.get(column)) for column in columns] for row in scores[:_MOST_LINES]]
        run.log({"test/scores": wandb.Table(columns=columns, data=data)})


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value
