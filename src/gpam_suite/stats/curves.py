"""Learning curves over seeds, from the histories of the runs, and what a model is ahead by at equal work."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record
from gpam_suite.records.history_rows import best_validation
from gpam_suite.records.lines import read_history
from gpam_suite.records.settings import all_settings
from gpam_suite.stats.over_seeds import Difference, difference
from gpam_suite.stats.rows import Row

_BEFORE = 0.25
"""Share of training that is left out of :func:`at_equal_work`: there the curves are steepest and a lead still grows."""


def title(task: str) -> str:
    """``Validation perplexity per token``; recall is scored on its answers alone."""
    return f"Validation perplexity per {TASKS[task].scored}"


class Curve(NamedTuple):
    """Validation perplexity at ``updates``: ``values`` [seeds, updates]."""

    updates: np.ndarray
    values: np.ndarray


def validation(record: Record) -> dict[int, float]:
    """Update to validation perplexity per token, label smoothing left out; where a resumed run came by an update twice,
    the later row counts."""
    rows = read_history(record.folder, "valid")
    return {row["update"]: found for row in rows if (found := perplexity(row)) is not None}


def perplexity(row: Mapping[str, Any]) -> float | None:
    """Per token, of a validation. fairseq rounds perplexity to two decimals, and the bits that it logs beside label
    smoothing to three: where there are both, the middle of what both allow."""
    logged, bits = row.get("token_perplexity"), row.get("nll_bits")
    if logged is None or bits is None:
        return logged
    least = max(logged - 0.005, 2 ** (bits - 0.0005))
    return (least + min(logged + 0.005, 2 ** (bits + 0.0005))) / 2


def scored_update(record: Record) -> int | None:
    """The update whose checkpoint is scored; None of a run that was lost, or where no validation is known."""
    if record["status"] != "finished":
        return None
    if record.at("protocol", "checkpoint") == "last":
        return record["updates"]
    best = best_validation(read_history(record.folder, "valid"))
    return None if best is None else best["update"]


def scored_validation(record: Record) -> float | None:
    """Validation perplexity of the scored checkpoint: as the test set was scored, in language modelling; in
    translation per token, as while it trained."""
    return record["metrics"].get("valid_perplexity") or validation(record).get(scored_update(record))


def learning_curve(row: Row) -> Curve | None:
    """The curve over the finished seeds, at the updates all of them validated at; None below two such updates."""
    seeds = [validation(record) for record in row.finished]
    shared = sorted(set.intersection(*map(set, seeds))) if seeds else []
    if len(shared) < 2:
        return None
    return Curve(np.array(shared), np.array([[one[update] for update in shared] for one in seeds]))


class Lead(NamedTuple):
    """What a model is ahead by, in ``ln PPL`` over ``seeds``, while the learning rate is held: at equal ``updates``,
    and at equal ``work``, where its update costs ``ratio`` times the other's FLOPs. ``each``: at equal work at each
    validation, mean over seeds. ``level``: what its update would have to cost for none of the lead to be left; None
    where that is beyond what can be read."""

    seeds: list[int]
    updates: Difference
    work: Difference
    ratio: float
    each: np.ndarray
    level: float | None


def at_equal_work(row: Row, other: Row) -> Lead | None:
    """``mean over u of ln PPL(other, u r) - ln PPL(row, u)`` of each seed, ``r`` the ratio of FLOPs, and the same with
    1 for ``r``. ``u`` are the validations of ``row`` from a quarter of training on; ``u`` and ``u r`` lie within those
    of ``other`` before its rate falls, and between them its curve is straight in ``ln u`` and ``ln PPL``.

    Only while the rate is held do two models at equal work stand at the same rate. None without such validations, or
    for a schedule that does not hold the rate (fairseq's ``tri_stage`` does).
    """
    own, base, ratio = learning_curve(row), learning_curve(other), row.ratio(other, "flops", "train_per_token")
    seeds = sorted(set(row.seeds) & set(other.seeds))
    falls = _rate_falls(other)
    if not (own and base and ratio and falls and seeds):
        return None
    held = base.updates <= falls
    first = _BEFORE * row.finished[0]["updates"]
    read = own.updates >= first
    for by in (1.0, ratio):
        read &= (own.updates * by >= base.updates[0]) & (own.updates * by <= max(base.updates[held], default=0))
    if not read.any():
        return None

    sides = (own, row), (base, other)
    of_seeds = [[np.log(curve.values[one.seeds.index(seed)]) for curve, one in sides] for seed in seeds]

    def ahead(factor: float) -> np.ndarray:
        """[seeds, validations]"""
        at, known = np.log(own.updates[read] * factor), np.log(base.updates[held])
        return np.array([np.interp(at, known, its[held]) - mine[read] for mine, its in of_seeds])

    leads = [ahead(by) for by in (1.0, ratio)]
    means = (dict(zip(seeds, lead.mean(axis=1).tolist(), strict=True)) for lead in leads)
    found = (difference(one, dict.fromkeys(seeds, 0.0)) for one in means)
    level, most = None, base.updates[held].max() / own.updates[read].max()
    if leads[0].mean() > 0 > ahead(most).mean():
        level = float(optimize.brentq(lambda factor: ahead(factor).mean(), 1.0, most))
    return Lead(seeds, *found, ratio, leads[1].mean(axis=0), level)


def _rate_falls(row: Row) -> float | None:
    """The update at which a schedule that holds its rate begins to lower it."""
    settings = all_settings(row.finished[0].config)
    phases = settings.get("fairseq.lr_scheduler.phase_ratio")
    return phases and (phases[0] + phases[1]) * settings["fairseq.optimization.max_update"]
