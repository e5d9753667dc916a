r"""Sub-words replaced so that a model's loss rises most by its own gradient: HotFlip (Ebrahimi et al. 2018, "HotFlip:
White-Box Adversarial Examples for Text Classification"), with sub-words in the place of characters.

With `E` the table of input embeddings `[vocabulary, width]`, `x_i` the sub-word at position `i`, `L` the loss in nats
and `g_i = dL/dE[x_i]` its gradient with respect to the embedding that is read at `i`, replacing `x_i` by `v` changes
the loss to first order by

    gain(i, v) = (E[v] - E[x_i]) . g_i

Each position has a best substitute, `v_i = argmax over v != x_i of gain(i, v)`; the `k` positions of largest
`gain(i, v_i)` are replaced, all at once, by the gradient at the clean text. Special symbols are neither replaced nor
put in.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def input_gradient(embedding: nn.Module, loss: Callable[[], Tensor]) -> Tensor:
    """Gradient of ``loss()`` with respect to what ``embedding`` puts out when it is first called in it.

    Only its first call counts: a table that encoder and decoder share is read by the encoder first.

    Returns:
        ``[batch, tokens, width]``, in nats by unit of the (unscaled) embedding.
    """
    read: list[Tensor] = []

    def catch(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        if read:
            return output
        read.append(output.detach().requires_grad_())
        return read[0]

    with embedding.register_forward_hook(catch):
        value = loss()
    return torch.autograd.grad(value, read)[0]


def ordinary(dictionary: Any) -> Tensor:
    """Which symbols ``[vocabulary]`` stand for text: not fairseq's special ones, nor those that fill its dictionary
    up to a round size (no model has ever read them)."""
    counts = zip(dictionary.symbols, dictionary.count, strict=True)
    real = [count > 0 or not name.startswith("madeupword") for name, count in counts]
    return torch.tensor([False] * dictionary.nspecial + real[dictionary.nspecial :])


def best_substitutes(tokens: Tensor, gradient: Tensor, embeddings: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """``gain(i, v_i)`` and ``v_i`` of each position, both ``[tokens]``; the gain of a special symbol is ``-inf``.

    Args:
        tokens: ``[tokens]``.
        gradient: ``[tokens, width]``, of the loss.
        embeddings: ``[vocabulary, width]``.
        allowed: ``[vocabulary]``, the symbols that may be replaced and put in (:func:`ordinary`).
    """
    own = (gradient * embeddings[tokens]).sum(-1, keepdim=True)
    gains = (gradient @ embeddings.T - own).masked_fill(~allowed, -torch.inf)
    gains.scatter_(-1, tokens.unsqueeze(-1), -torch.inf)
    gain, substitute = gains.max(-1)
    return gain.masked_fill(~allowed[tokens], -torch.inf), substitute


def with_substitutes(tokens: Tensor, gain: Tensor, substitute: Tensor, rate: float, rounding: float) -> Tensor:
    """``tokens`` with ``k = floor(rate n + rounding)`` of their ``n`` replaceable positions replaced, those of largest
    gain; of equal gains the first. A ``rounding`` drawn from [0, 1) makes the share ``rate`` on average in short texts
    too."""
    replaceable = int(gain.isfinite().sum())
    count = min(replaceable, int(rate * replaceable + rounding))
    places = gain.sort(descending=True, stable=True).indices[:count]
    found = tokens.clone()
    found[places] = substitute[places]
    return found
