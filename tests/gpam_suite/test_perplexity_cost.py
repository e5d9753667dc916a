"""How many tokens a perplexity makes the model compute."""

from types import SimpleNamespace

import pytest
import torch

from gpam_suite.evaluate.language_model import token_nll


class Counting(torch.nn.Linear):
    """A uniform model over 7 words that counts the tokens of its decoder and of its output layer."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.computed = self.projected = 0
        self.decoder = SimpleNamespace(extract_features=self._features, output_layer=self._project)

    def _features(self, source, _):
        self.computed += source.numel()
        return torch.zeros(*source.shape, 1), None

    def _project(self, features):
        self.projected += features[..., 0].numel()
        return torch.zeros(*features.shape[:2], 7)

    def get_normalized_probs(self, output, log_probs, sample):
        return torch.log_softmax(output[0], -1)


@pytest.mark.parametrize("context_window", [0, 4, 9])
def test_every_token_is_scored_once_and_without_a_context_window_computed_once(context_window):
    model, stream, sample = Counting(), torch.randint(4, 7, (120,)), 16
    nll = token_nll(model, stream, eos=2, tokens_per_sample=sample, context_window=context_window, max_tokens=64)
    assert model.projected == len(nll) == 120
    contexts = [min(start, context_window) for start in range(0, 120, sample - context_window)]
    assert model.computed == 120 + sum(contexts)
    assert (model.computed == 120) == (context_window == 0)
