"""What a run is perturbed with: kinds, rates and a seed; and the draws that are the same for every model."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from gpam_suite.inside.perturb.noise import NOISE, changed

FOLDER = "perturbed"
"""Below a results folder: what was found, by run."""
ADVERSARIAL = "adversarial"
KINDS = (*NOISE, ADVERSARIAL)


@dataclass(frozen=True)
class Settings:
    """``kinds`` of :data:`KINDS`, ``rates`` above zero in ascending order, the ``seed`` of the noise, and how many
    ``texts`` (sentences or blocks) of the test set are read."""

    kinds: tuple[str, ...]
    rates: tuple[float, ...]
    seed: int
    texts: int

    def stored(self) -> dict[str, Any]:
        """As plain data, to be kept beside the numbers."""
        return {"kinds": list(self.kinds), "rates": list(self.rates), "seed": self.seed, "texts": self.texts}

    def draw(self, kind: str, text: int) -> Random:
        """The generator of the ``text``-th text: it depends on nothing else, so every model reads the same noise."""
        return Random(f"{self.seed}/{kind}/{text}")

    def noisy(self, kind: str, rate: float, texts: Sequence[str], letters: str) -> tuple[list[str], float]:
        """``texts`` with noise, line by line, and the share of words that differ."""
        found = []
        for number, text in enumerate(texts):
            draw = self.draw(kind, number)
            found.append("\n".join(NOISE[kind](line, rate, draw, letters) for line in text.split("\n")))
        words = sum(len(text.split()) for text in texts)
        return found, sum(map(changed, texts, found)) / max(1, words)
