"""The folder one run leaves behind, and the record in it.

``<results>/runs/<experiment>/<model>-<options>/seed<k>-<hash>/`` holds

- ``record.json``: what was run and what came out (:data:`SCHEMA`); a run is done when this file is there,
- ``config.yaml``: the resolved configuration,
- ``metrics.jsonl``: the history, one object a line (``update``, ``split``, ``token_perplexity``, ...),
- ``scores.jsonl``: the test set, one object a document or a passage (language modelling: ``document`` or ``passage``,
  ``words``, ``nll`` in nats), a sentence or a document (translation: ``sentence`` or ``document``, ``bleu`` = [system
  length, reference length, 4 matches, 4 totals]), or a sequence (recall: ``sequence``, ``answers``, ``correct``,
  ``nll`` in nats),
- ``hypotheses.txt``: the translations of the test set, one a line; ``second_test_hypotheses.txt``, where there is one.

An archive ``<results>/runs/<experiment>.tar.xz`` is read like the folder (:mod:`gpam_suite.records.archives`). Records
are the truth: tables, figures and trackers are made from them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import best_match

from gpam.errors import UsageError, did_you_mean, in_a_line
from gpam_suite.common import strict_json
from gpam_suite.common.files import safe_name, write_atomically
from gpam_suite.common.markup import control
from gpam_suite.common.strict_json import KEY, checked, summed
from gpam_suite.common.tasks import TASKS
from gpam_suite.config.identity import CONFIG, config_hash
from gpam_suite.records import archives
from gpam_suite.records.schema import SCHEMA, SCHEMA_VERSION

RECORD, HYPOTHESES = "record.json", "hypotheses.txt"
WORDS_BY = ("tokenizer", "normalise", "hyphens", "last_stop", "lowercase", "min_count")
"""What of the ``preprocessing`` node makes other words of the same text, or ``<unk>`` of some."""
CHECKPOINT = "checkpoint"
"""The name of the evaluated checkpoint among a record's ``checksums``; beside it stand ``scores.jsonl`` (not in records
from before 2026-11-28) and files of the prepared data."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, ten times as fast
_FORMATS = FormatChecker(formats=())
_VALIDATOR = Draft202012Validator(SCHEMA, format_checker=_FORMATS)


@_FORMATS.checks("text without control characters")
def _is_label(text: Any) -> bool:
    return not isinstance(text, str) or control(text) is None


@_FORMATS.checks("date-time", (ValueError, TypeError))
def moment(text: str) -> datetime:
    """A date with its time, as records have it.

    Raises:
        ValueError: there is no such moment.
    """
    found = datetime.fromisoformat(text)
    found.timestamp()
    return found


@dataclass(frozen=True, eq=False)
class Record:
    """One valid record and the folder it was read from; ``record["seed"]`` reads a field."""

    folder: Path
    data: dict[str, Any]

    def __getitem__(self, field: str) -> Any:
        return self.data[field]

    def at(self, *path: str) -> Any:
        """A value further in, ``at("memory", "peak_bytes")``; None where some part of the way is not there."""
        value: Any = self.data
        for key in path:
            value = None if value is None else value.get(key)
        return value

    @property
    def headline(self) -> float | None:
        """Test perplexity, BLEU or accuracy; None when the run has none."""
        return self.data["metrics"].get(TASKS[self.data["task"]].headline)

    @property
    def hardware(self) -> dict[str, Any]:
        """What it ran on, memory in GiB: kernels leave some kilobytes more or less of the same."""
        told = dict(self.data["hardware"])
        memory = told.pop("memory_bytes", None)
        return told if memory is None else {**told, "memory_gib": round(memory / 2**30)}

    @property
    def checkpoint(self) -> str | None:
        """SHA-256 of the checkpoint that was evaluated; None where it is not known."""
        return self.at("checksums", CHECKPOINT)

    @cached_property
    def scored_by(self) -> dict[str, Any]:
        """What two headline numbers must share to be comparable: the text, files that first parameters come from, and
        every field of the protocol."""
        protocol = {f"protocol.{name}": value for name, value in self.data["protocol"].items()}
        begins = {f"checksum of {name}": value for name, value in (self.at("data", "begins_from") or {}).items()}
        return {"data checksum": self.data["data"]["checksum"], **begins, **protocol}

    def scored_otherwise(self, other: "Record") -> list[tuple[str, Any, Any]]:
        """Why the headline numbers of the two do not compare: names, each with both values. Two language models must
        have the same words too (translations are scored as text).

        Raises:
            UsageError: see :attr:`config`.
        """
        words = not TASKS[self.data["task"]].parallel
        one, two = ({**record.scored_by, **(record._words_by if words else {})} for record in (self, other))
        return [(key, one.get(key), two.get(key)) for key in {**one, **two} if one.get(key) != two.get(key)]

    @property
    def _words_by(self) -> dict[str, Any]:
        given = self.config.get("preprocessing", {})
        used = {key: given.get(key) for key in WORDS_BY if given.get(key) not in (None, False, 0, "none")}
        return {f"preprocessing.{key}": value for key, value in used.items()}

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration.

        Raises:
            UsageError: it is not there, cannot be read, or is not the one that the record is of.
        """
        path = self.folder / CONFIG
        try:
            config = yaml.load(archives.read_bytes(path), _Loader)
            if not isinstance(config, dict):
                raise ValueError("it holds no mapping")
        except (yaml.YAMLError, ValueError, FileNotFoundError) as error:
            said = "it is not there" if isinstance(error, FileNotFoundError) else in_a_line(error)
            raise UsageError(f"{path} cannot be read ({said}): restore it from git, or run again.") from None
        check_hash(self, config)
        return config


def check_hash(record: Record, config: Mapping[str, Any]) -> None:
    """Refuse a configuration that is not the one that the run's numbers are of.

    Raises:
        UsageError: it has another hash than the record says.
    """
    if (found := config_hash(config)) != record["config_hash"]:
        raise UsageError(
            f"{record.folder / CONFIG} was changed: its hash is {found}, and the run's was {record['config_hash']}; "
            "restore it, or train what it says now"
        )


# ------------------------------------------------------------------------------------------------------------- writing


def _complaint(data: Any) -> str | None:
    """What is wrong with a record, in words; None when it is valid."""
    error = best_match(_VALIDATOR.iter_errors(data))
    if error is None:
        return None
    where = ".".join(str(part) for part in error.absolute_path)
    message = error.message if len(error.message) <= 200 else f"{error.message[:200]}..."
    return f"{where}: {message}" if where else message


def write_record(folder: Path, record: Mapping[str, Any]) -> Path:
    """Validate ``record`` and write ``folder/record.json`` atomically; returns its path.

    ``schema_version`` is added. Numbers that are NaN or infinite become null, so a run whose headline number is not
    finite cannot be recorded as ``finished``: its status is ``diverged``.

    Raises:
        UsageError: the record does not fit :data:`SCHEMA`; nothing is written.
    """
    data = strict_json.with_nulls({"schema_version": SCHEMA_VERSION, **record})
    path = folder / RECORD
    if complaint := _complaint(data):
        raise UsageError(
            f"Not writing {path}, the record does not fit the schema: {complaint}. Fill in the field "
            "(null where it may be unknown; status 'failed' or 'diverged' with a reason where the run has no result)."
        )
    return write_atomically(path, summed(data, indent=2))


# ------------------------------------------------------------------------------------------------------------- reading


def is_finished(folder: Path) -> bool:
    """Whether ``folder`` holds a valid record with status ``finished`` (such a run need not be run again)."""
    return archives.is_file(folder / RECORD) and read_record(folder)["status"] == "finished"


def read_record(folder: Path) -> Record:
    """The record in ``folder``.

    Raises:
        UsageError: there is none, it is cut off, or it does not fit :data:`SCHEMA`.
    """
    path = folder / RECORD
    advice = f"restore it from git, or delete the folder {folder} and run again"
    try:
        data = strict_json.loads(archives.read_bytes(path))
        if isinstance(data, dict) and (version := data.get("schema_version")) != SCHEMA_VERSION:
            raise ValueError(f"it has schema version {version!r}, this code reads {SCHEMA_VERSION}")
        data = checked(data) if isinstance(data, dict) and KEY in data else data
        if complaint := _complaint(data):
            raise ValueError(f"it does not fit the schema: {complaint}")
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist, the run has not ended: run it again to finish it.") from None
    except ValueError as error:
        raise UsageError(f"{path} is cut off, was changed or is of another version ({error}): {advice}.") from None
    return Record(folder, data)


def folders_of_runs(results: Path) -> dict[str, list[Path]]:
    """The folders below ``results`` that hold a record, by the name of their experiment's folder, in order; with those
    of experiments in which no run has ended."""
    root = Path(results) / "runs"
    found: dict[str, list[Path]] = {folder.name: [] for folder in root.glob("*") if folder.is_dir()}
    for path in archives.find(root, f"*/*/*/{RECORD}"):
        found.setdefault(path.relative_to(root).parts[0], []).append(path.parent)
    return dict(sorted(found.items()))


def read_each(folders: Iterable[Path]) -> list[Record]:
    """The records of the folders of runs.

    Raises:
        UsageError: a broken record, or one that lies under another experiment's name.
    """
    records = [read_record(folder) for folder in folders]
    for record in records:
        if safe_name(record["experiment"]) != record.folder.parent.parent.name:
            raise UsageError(
                f"{record.folder / RECORD} is of experiment '{record['experiment']}' but lies under "
                f"'{record.folder.parent.parent.name}': move the folder where it belongs, or run again."
            )
    return records


def read_records(results: Path, experiment: str | None = None) -> list[Record]:
    """Every record below ``results``, or those of one experiment, ordered by folder name.

    Folders without ``record.json`` are runs that have not ended; they are left out.

    Raises:
        UsageError: no such experiment, a broken record, or one that lies under another experiment's name.
    """
    folders = folders_of_runs(results)
    if experiment is None:
        return read_each(folder for found in folders.values() for folder in found)
    if safe_name(experiment) not in folders:
        raise UsageError(
            f"No runs of experiment '{experiment}' below {Path(results) / 'runs'}{did_you_mean(experiment, folders)}; "
            f"there are {', '.join(folders) or 'none at all'}. Train it first, or name another."
        )
    return read_each(folders[safe_name(experiment)])
