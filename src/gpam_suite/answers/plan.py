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
PERTURBED = ("nmt_multi30k_de_en", *LANGUAGE_MODELS)
PLANNED = (*MAIN, *OTHER_DATA, *(name for pair in LENGTHS for name in pair), *LAMBDAS)
"""Every experiment of the plan but those that choose its recipes."""
GRID_POINTS = 24
"""Of lambda+ and lambda- in each of :data:`LAMBDAS`."""


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
    """The plan's ``controls``, ``alternatives`` or ``ablations``: one seed of each in all of :data:`MAIN`."""
    return tuple(OmegaConf.load(CONFIGS / "evidence.yaml")[name].split(","))
