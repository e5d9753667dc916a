"""A run that was trained, opened to be read again: with the checks that training itself made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from gpam.errors import UsageError
from gpam_suite.common.files import file_sha256
from gpam_suite.config.compose import identity, stored
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.config.identity import CHECKPOINTS, CONFIG
from gpam_suite.data import Prepared, prepare
from gpam_suite.data.prepared import fill_paths
from gpam_suite.data.text.segmentation import BPE_FILES
from gpam_suite.evaluate.checkpoint import load_model
from gpam_suite.records.folder import CHECKPOINT, Record, check_hash, read_record
from gpam_suite.records.lines import SCORES


@dataclass(frozen=True)
class Trained:
    """A run in ``folder``: its configuration ``cfg`` and, as ``complete``, fairseq's part of it; its record, data and
    fairseq's task."""

    folder: Path
    cfg: DictConfig
    complete: DictConfig
    record: Record
    prepared: Prepared
    task: Any

    def model(self, name: str | None = None) -> nn.Module:
        """The model of the checkpoint that the record's numbers are of, or of another: ``best``, ``last``, a path.

        Raises:
            UsageError: it is not there, spoilt, of another model, or not the one that was evaluated.
        """
        own = str(self.cfg.evaluation.checkpoint)
        name = own if name is None else name
        path = Path(name) if name.endswith(".pt") else checkpoint_of(self.folder, name)
        written = self.record.checkpoint
        if name == own and written and path.is_file() and file_sha256(path) != written:
            raise UsageError(
                f"{path} is not the checkpoint that the numbers in {self.folder} are of (by its SHA-256): put it back, "
                "or delete the folder and train again"
            )
        return load_model(path, self.complete, self.task)


def exact_float32() -> None:
    """On a GPU float32 is float32, in an LSTM too, whatever ``TORCH_ALLOW_TF32_CUBLAS_OVERRIDE`` asks for."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def checkpoint_of(folder: Path, name: str) -> Path:
    """The checkpoint called ``name`` (``best``, ``last``) of the run in ``folder``."""
    return folder / CHECKPOINTS / f"checkpoint_{name}.pt"


def checksums(prepared: Prepared, checkpoint: Path, folder: Path) -> dict[str, str]:
    """For the record in ``folder``: of the evaluated checkpoint and its scores, of the dictionaries and sub-words that
    it was trained with."""
    files = prepared.manifest["files"]
    codes = {f"bpe/{code}" for code in BPE_FILES.values()}
    named = {name: of["sha256"] for name, of in files.items() if name in codes or name.startswith("bin/dict.")}
    return {CHECKPOINT: file_sha256(checkpoint), SCORES: file_sha256(folder / SCORES), **named}


def open_trained(folder: Path, paths: Any, *, cpu: bool = False) -> Trained:
    """The run in ``folder``, after making sure that nothing of it has changed since.

    Args:
        cpu: put models on the CPU, whatever the run was trained on.

    Raises:
        UsageError: no run that has ended, or its configuration, text or dictionary is another one now.
    """
    if not (folder / CONFIG).is_file():
        inside = sorted(path.parent for path in folder.glob(f"seed*/{CONFIG}"))
        meant = f", for instance {inside[0]}" if inside else ""
        raise UsageError(
            f"run: {folder} is not the folder of a run that was trained here (no {CONFIG} is in it); wanted one "
            f"below <results>/runs/{meant}; of published runs there are records and no checkpoints"
        )
    cfg, record = stored(folder / CONFIG), read_record(folder)
    check_hash(record, identity(cfg))
    prepared = prepare(cfg.dataset, cfg.preprocessing, paths)
    if prepared.manifest["checksum"] != record["data"]["checksum"]:
        raise UsageError(
            f"the text of {folder} has changed since it was trained: its checksum was "
            f"{record['data']['checksum'][:12]}, now it is {prepared.manifest['checksum'][:12]}; put the text back"
        )
    for name, written in (record.at("checksums") or {}).items():
        if name not in (CHECKPOINT, SCORES) and prepared.manifest["files"].get(name, {}).get("sha256") != written:
            raise UsageError(
                f"{prepared.folder / name} is not the one that {folder} was trained with; prepare the data with the "
                "versions that its record names"
            )
    complete = fairseq_config(cfg)
    complete.common.cpu = complete.common.cpu or cpu
    exact_float32()
    fill_paths(complete, folder, prepared)

    import gpam_fairseq  # noqa: F401, I001  (before fairseq)
    from fairseq import tasks

    return Trained(folder, cfg, complete, record, prepared, tasks.setup_task(complete.task))
