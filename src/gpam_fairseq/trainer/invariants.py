"""What must hold of attention whatever it learns, checked in training on rows of the batch that is being trained on.

Every so many updates and at the first, each attention module is asked about the beginning of the batch's longest
sentence: do its weights lie in the mechanism's range and sum to the mechanism's row sum (``weight_range``, ``row_sum``
with the parameters of that moment), have keys that a row does not see none, and does the mechanism, called on these
rows without dropout, give those weights times the values (so few rows may take another backend than training's).
Nothing is changed by it, no random number drawn: training stays the same bit by bit.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from gpam_fairseq.attention import GPAMMultiheadAttention
from gpam_fairseq.trainer.replacing import replaced

import torch
import torch.nn.functional as F
from torch import Tensor

from gpam.attention import parts
from gpam.attention.base import Mechanism

_ROWS = 32


class Violated(Exception):
    """An invariant does not hold; says at which update, where, and which."""


@contextlib.contextmanager
def checked_attention(every: int) -> Iterator[None]:
    """While this holds, fairseq's trainer checks attention every ``every`` updates and at the first; 0: never.

    Raises:
        Violated: the run must not go on.
    """
    from fairseq.trainer import Trainer

    stock = Trainer.train_step

    def train_step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        update = trainer.get_num_updates() + 1
        due = every > 0 and (update == 1 or update % every == 0)
        with _asking(trainer.get_model(), update) if due else contextlib.nullcontext():
            return stock(trainer, *args, **kwargs)

    with replaced(Trainer, train_step=train_step):
        yield


@contextlib.contextmanager
def _asking(model: torch.nn.Module, update: int) -> Iterator[None]:
    asked: set[str] = set()

    def ask_once(path: str) -> Any:
        def hook(mechanism: Mechanism, args: tuple, kwargs: dict[str, Any]) -> None:
            if path not in asked:  # of several batches of one update, the first
                asked.add(path)
                if wrong := complaint(mechanism, *args, **kwargs):
                    raise Violated(f"update {update}: attention of {path} ({type(mechanism).__name__}): {wrong}")

        return hook

    with contextlib.ExitStack() as hooks:
        for path, module in model.named_modules():
            if isinstance(module, GPAMMultiheadAttention):
                hooks.enter_context(module.mechanism.register_forward_pre_hook(ask_once(path), with_kwargs=True))
        yield


@torch.no_grad()
def complaint(
    mechanism: Mechanism,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    query_input: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
    **_: Any,
) -> str | None:
    """What is wrong with ``mechanism`` on the first rows of the sentence with the least padding; None if nothing is.

    Arguments are those of :meth:`gpam.attention.base.Mechanism.forward`.
    """
    one = 0 if key_padding_mask is None else int(key_padding_mask.sum(-1).argmin())
    sources = _ROWS if q.shape[2] == k.shape[2] else k.shape[2]  # the start of a text is a text as well
    q, k, v = q[one : one + 1, :, :_ROWS], k[one : one + 1, :, :sources], v[one : one + 1, :, :sources]
    mask = None if key_padding_mask is None else key_padding_mask[one : one + 1, :sources]
    query_input = None if query_input is None else query_input[one : one + 1, :_ROWS]
    training, retained = mechanism.training, mechanism.retain_dropout
    mechanism.eval()
    mechanism.retain_dropout = False  # no dropout
    try:
        if type(mechanism)._weights is Mechanism._weights:  # it has them in its output only
            weights = mechanism(
                q, k, v, query_input=query_input, key_padding_mask=mask, causal=causal, need_weights=True
            )[1]
        else:
            weights = mechanism.weights(q, k, key_padding_mask=mask, causal=causal)
        if weights.dim() != 4 or weights.shape[2:] != (q.shape[2], k.shape[2]):
            wanted = f"[batch, heads, target, source] with {q.shape[2]} targets and {k.shape[2]} sources"
            return f"its weights have the shape {list(weights.shape)}, wanted {wanted}"
        visible = parts.visible_sources(q, k, mask, causal)
        seen = visible.any(-1)
        if mask is not None:  # a padded target may lack its own position
            seen = seen & ~F.pad(mask, (0, _ROWS))[:, None, : q.shape[2]].bool()
        hidden = weights.masked_fill(visible | ~seen.unsqueeze(-1), 0)
        if (most := float(hidden.abs().max())) > 0:
            return f"a key that its row does not see has a weight of {most:.3g}, wanted 0 (masks.visible tells them)"
        return _of_rows(mechanism, weights, seen) or _of_path(mechanism, q, k[:, :, :_ROWS], v[:, :, :_ROWS], causal)
    finally:
        mechanism.train(training)
        mechanism.retain_dropout = retained


def _of_rows(mechanism: Mechanism, weights: Tensor, seen: Tensor) -> str | None:
    """``seen`` ``[1, 1, target]``: the rows whose sum is known."""
    low, high = (_per_row(bound, weights) for bound in mechanism.weight_range())
    total = mechanism.row_sum()
    tolerance, eps = _tolerance(weights), torch.finfo(weights.dtype).eps
    weights = weights.double()
    if not bool(torch.isfinite(weights).all()):
        return "a weight is not a finite number"
    slack = tolerance * (1 + _size(low) + _size(high))
    if bool((weights < low - slack).any()) or bool((weights > high + slack).any()):
        return (
            f"weights from {float(weights.min()):.6g} to {float(weights.max()):.6g}, wanted from "
            f"{float(low.min()):.6g} to {float(high.max()):.6g}"
        )
    if total is None:
        return None
    if not bool(torch.isfinite(high - low).all()):  # unbounded weights are rounded the more, the larger they are
        slack += eps * float(weights.abs().sum(-1).max())
    off = ((weights.sum(-1) - _per_row(total, weights).squeeze(-1)) * seen).abs().max()
    return f"a row's sum is off by {float(off):.3g}" if float(off) > slack else None


def _of_path(mechanism: Mechanism, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> str | None:
    if not mechanism.mixes_only or (causal and q.shape[2] != k.shape[2]):
        return None
    output = mechanism(q, k, v, causal=causal)[0].double()
    wanted = mechanism.weights(q, k, causal=causal).double() @ v.double()
    off = float((output - wanted).abs().max())
    allowed = _tolerance(v) * (1 + float(wanted.abs().max()) + float(v.abs().max()))
    return None if off <= allowed else f"the output is off by {off:.3g} from weights times values"


def _tolerance(values: Tensor) -> float:
    return max(1e-4, 16 * torch.finfo(values.dtype).eps)


def _per_row(value: float | Tensor, weights: Tensor) -> Tensor:
    """One number, or one a head, against ``weights`` ``[batch, heads, target, source]``."""
    return torch.as_tensor(value, dtype=torch.float64, device=weights.device).reshape(-1, 1, 1)


def _size(bound: Tensor) -> float:
    largest = float(bound.abs().max())
    return largest if largest < float("inf") else 0.0
