"""Optuna's search over options of a mechanism, lambda- and lambda+ above all.

A trial is an ordinary run: trained, evaluated and recorded like any other, and skipped where it is finished. Its
objective is the least validation loss of its history, in bits a token; the test set has no part in the search.

The study is in ``<paths.results>/searches/<name>/study.db``. What is suggested next depends on the seed and the trials
before, so a search that was killed anywhere ends as it would have without.
"""

import contextlib
import logging
import math
import sqlite3
from pathlib import Path
from typing import Any

import optuna
from omegaconf import DictConfig, OmegaConf
from optuna.trial import TrialState
from sqlalchemy import URL

from gpam.attention import options_of
from gpam.errors import UsageError, did_you_mean
from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import plural
from gpam_suite.common.lock import locked
from gpam_suite.common.options import mapping, whole_number
from gpam_suite.common.sections import Section, Table, print_sections
from gpam_suite.config.compose import check, folder_of, identity
from gpam_suite.config.fairseq_tree import model_options
from gpam_suite.config.identity import config_hash
from gpam_suite.data import prepare
from gpam_suite.data.options import plain
from gpam_suite.records.history_rows import best_validation
from gpam_suite.records.lines import read_history
from gpam_suite.run.outcomes import RunDiverged, RunFailed
from gpam_suite.run.run import run

log = logging.getLogger(__name__)


def search(cfg: DictConfig) -> None:
    """Run trials until there are ``cfg.trials``, and print them, the best first.

    Raises:
        UsageError: an option that the mechanism has not, a range that is none, or a search of that name that is under
            way elsewhere, or of other settings.
        RunFailed: a run failed, for want of memory or by a crash; the same call tries it again.
    """
    base, options = _base(cfg), _options(cfg)
    text = prepare(base.dataset, base.preprocessing, base.paths).manifest["checksum"]
    settings = config_hash({**identity(base), "options": options, "text": text})
    folder = Path(cfg.paths.results) / "searches" / safe_name(cfg.search.name)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=False):
        study = _study(folder, cfg.search.name, settings)
        _end_what_was_killed(study)
        while (number := len(_done(study))) < cfg.trials:
            study.sampler = optuna.samplers.TPESampler(seed=cfg.seed + number)
            _try(study, base, options)
        print_sections([_result(study, list(options))])


def _base(cfg: DictConfig) -> DictConfig:
    """The configuration that the trials share, without what only the search reads."""
    mapping(cfg.search, "search")
    base = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True))
    base.experiment_name = base.search.name
    for key in ("search", "trials"):
        del base[key]
    check(base)
    return base


def _options(cfg: DictConfig) -> dict[str, dict[str, float]]:
    known, found = model_options(cfg), plain(cfg.search.options, "search.options")
    if not found:
        raise UsageError(f"search.options: got none, wanted ranges of some of {', '.join(known) or 'none'}")
    for name, range_ in found.items():
        if name not in known:
            raise UsageError(
                f"search.options: {cfg.model.name} has no option '{name}'{did_you_mean(name, known)} "
                f"(it has {', '.join(known) or 'none'})"
            )
        if not _is_range(range_):
            raise UsageError(
                f"search.options.{name}: got {range_}, wanted numbers: low, high (no less) and, where it has one, a "
                "step above 0"
            )
        default = getattr(options_of(cfg.model.attention), name)
        if isinstance(default, str):
            raise UsageError(f"search.options.{name}: it is no number; a multirun tries one by one what it may be")
        whole = isinstance(default, int)
        if whole and not all(isinstance(range_.get(key), int) for key in ("low", "high", "step")):
            raise UsageError(f"search.options.{name}: got {range_}, wanted whole numbers, with a step")
        for end in ("low", "high"):
            try:
                options_of(cfg.model.attention, {**known, name: range_[end]})
            except UsageError as error:
                raise UsageError(f"search.options.{name}.{end}: {error}") from None
    whole_number(cfg.trials, 1, "trials")
    return found


def _is_range(given: Any) -> bool:
    if not isinstance(given, dict) or not {"low", "high"} <= set(given) <= {"low", "high", "step"}:
        return False
    low, high, step = given["low"], given["high"], given.get("step")
    numbers = [low, high, 1 if step is None else step]
    plain_numbers = (isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
    return all(plain_numbers) and all(map(math.isfinite, numbers)) and low <= high and numbers[2] > 0


def _study(folder: Path, name: str, settings: str) -> optuna.Study:
    """The study in ``folder``; ``settings`` is the hash of what its trials share, of its ranges and of the text."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = (folder / "study.db").absolute()
    _check_whole(file)
    named = {"storage": URL.create("sqlite", database=str(file)).render_as_string(), "study_name": name}
    study = optuna.create_study(**named, direction="minimize", load_if_exists=True)
    if study.user_attrs.get("settings", settings) != settings:
        if _done(study):
            raise UsageError(
                f"search '{name}' in {folder} has trials of another model, of other text or with other settings; give "
                "this one a name of its own (search.name=...)"
            )
        optuna.delete_study(**named)  # what was killed in its first trial is of the other settings
        study = optuna.create_study(**named, direction="minimize")
    study.set_user_attr("settings", settings)
    return study


def _check_whole(file: Path) -> None:
    if not file.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(file)) as base:
            (said,) = base.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        said = str(error)
    if said != "ok":
        raise UsageError(f"{file} is damaged ({said}): remove it, and search again; finished trials are not run again")


def _done(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Trials with a value, and those whose run diverged, which Optuna calls pruned."""
    return study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED), deepcopy=False)


def _end_what_was_killed(study: optuna.Study) -> None:
    """End trials that no process works on any more (the folder is locked), killed or failed. The same options are
    suggested again, as the seed is that of the trials done, and their run goes on where it was."""
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)


def _values(trial: optuna.Trial | optuna.trial.FrozenTrial) -> dict[str, float]:
    """The options as they are trained: suggestions have more digits."""
    return {name: round(value, 6) for name, value in trial.params.items()}


def _try(study: optuna.Study, base: DictConfig, options: dict[str, dict[str, float]]) -> None:
    trial = study.ask()
    for name, range_ in options.items():
        whole = isinstance(getattr(options_of(base.model.attention), name), int)
        (trial.suggest_int if whole else trial.suggest_float)(name, **range_)
    values = _values(trial)
    cfg = OmegaConf.merge(base, {"model": values})
    trial.set_user_attr("folder", str(folder_of(cfg)))
    log.info("trial %d: %s", trial.number + 1, ", ".join(f"{name}={value}" for name, value in values.items()))
    try:
        run(cfg)
        study.tell(trial, validation_loss(folder_of(cfg)))
    except RunDiverged as error:
        log.warning("lost: %s", error)
        study.tell(trial, state=TrialState.PRUNED)


def validation_loss(folder: Path) -> float:
    """The validation loss of the run's best checkpoint, in bits a token.

    Label smoothing is left out of it where the criterion has any.

    Raises:
        RunFailed: the run has never been validated.
    """
    best = best_validation(read_history(folder, "valid"))
    if best is None:
        raise RunFailed(f"{folder}: no validation in its history; lower fairseq.dataset.validate_interval_updates")
    return best["loss_bits"] if best.get("nll_bits") is None else best["nll_bits"]


def _result(study: optuna.Study, options: list[str]) -> Section:
    trials = sorted(_done(study), key=lambda trial: (trial.value is None, trial.value))
    lines = []
    for trial in trials:
        outcome = "lost" if trial.value is None else f"{trial.value:.3f}"
        values = _values(trial)
        lines.append([*(str(values[name]) for name in options), outcome, trial.user_attrs["folder"]])
    section = Section(f"{study.study_name}: {plural(len(lines), 'trial')}")
    section.blocks.append(Table([*options, "Validation loss (bits)", "Run"], lines))
    if trials[0].value is not None:
        values = _values(trials[0])
        chosen = " ".join(f"model.{name}={values[name]}" for name in options)
        section.blocks.append(f"Best on the validation set: {chosen}. Train it with other seeds before you believe it.")
    return section
