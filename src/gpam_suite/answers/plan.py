"""What ``docs/experiment-plan.md`` and ``configs/evidence.yaml`` fixed before the runs."""

import re
from functools import cache
from typing import NamedTuple

from omegaconf import OmegaConf

from gpam_suite.configuration import CONFIGS
from gpam_suite.environment import ROOT

LANGUAGE_MODELS = ("lm_wikitext2_deep", "lm_shakespeare")
TRANSLATIONS = ("nmt_multi30k_de_en", "nmt_multi30k_en_de")
MAIN = LANGUAGE_MODELS + TRANSLATIONS
OTHER_DATA = ("nmt_tatoeba", "nmt_tatoeba_post_ln", "nmt_iwslt14_sample", "nmt_iwslt14_sample_post_ln")
LENGTHS = (("lm_shakespeare_512", "lm_shakespeare_2048"), ("recall_256", "recall_1024"))
LAMBDAS = ("nmt_laptop_lambda", "lm_laptop_lambda")
ROW_SUM = ("lm_laptop_row_sum", "nmt_laptop_row_sum", "lm_wikitext2_row_sum")
PERTURBED = ("nmt_multi30k_de_en", *LANGUAGE_MODELS)
PLANNED = (*MAIN, *OTHER_DATA, *(name for pair in LENGTHS for name in pair), *LAMBDAS, *ROW_SUM)
"""Every experiment of the plan but those that choose its recipes."""
LOOKED_AT = (*MAIN, *OTHER_DATA, *LENGTHS[0])
"""Those whose trained models are looked into; recall has no text to look at."""
GRID_POINTS = 24
"""Of lambda+ and lambda- in each of :data:`LAMBDAS`."""
SETTINGS = 6
"""Of learning rate and dropout in each grid that chooses a recipe."""
_SEEDS = 3


class Question(NamedTuple):
    """A question and what the plan calls a yes."""

    text: str
    yes: str


@cache
def questions() -> dict[int, Question]:
    """Number to question, from the plan's first table."""
    text = (ROOT / "docs" / "experiment-plan.md").read_text(encoding="utf-8")
    rows = [re.split(r"\s*\|\s*", line) for line in text.partition("## Sizes")[0].splitlines()]
    return {int(row[1]): Question(row[2], row[4]) for row in rows if len(row) > 5 and row[1].isdigit()}


@cache
def models(name: str) -> tuple[str, ...]:
    """The plan's ``main`` models, three seeds of each, or its ``controls``, ``alternatives`` or ``ablations``, one seed
    of each; all in every experiment of :data:`MAIN`. Or those of ``row_sum``, three seeds of each in its own."""
    return tuple(OmegaConf.load(CONFIGS / "evidence.yaml")[name].split(","))


def of_one_sum() -> tuple[str, str]:
    """The two models of question 14 beside softmax: softmax whose rows are scaled, and daGPAM of the same sum."""
    _, scaled, same_sum = models("row_sum")
    return scaled, same_sum


def main_models(experiment: str) -> tuple[str, ...]:
    """The models of which the plan wants three seeds in this experiment."""
    if experiment in ROW_SUM:
        return models("row_sum")
    if experiment in LAMBDAS:
        return models("main")[:1]
    return models("main") if experiment in MAIN else models("main")[:2] if experiment in PLANNED else ()


def planned_runs(experiment: str) -> int:
    """How many runs the plan has of this experiment."""
    runs = _SEEDS * len(main_models(experiment))
    if experiment in LAMBDAS:
        return runs + GRID_POINTS
    return runs + sum(len(models(kind)) for kind in ("controls", "alternatives", "ablations") if experiment in MAIN)
