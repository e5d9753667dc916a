"""The paper's lemmas on the layers of a model: how tight the bounds are, how often they hold, how near assumptions are.

Lemmas 1 and 4 speak of self attention without a mask; where there is one (a decoder) their inequality is looked at all
the same, and counted as outside their assumption.
"""

import torch
from torch import Tensor

from gpam.analysis import lemmas, residual
from gpam.attention.mechanisms.dagpam import DaGPAM
from gpam.attention.mechanisms.softmax import Softmax
from gpam.attention.parts import scaled_scores
from gpam_suite.inside.measures import RESIDUAL_TOLERANCE
from gpam_suite.inside.observe import Observation, Seen


@torch.no_grad()
def check(observations: list[Observation]) -> dict[str, dict[str, float]]:
    """Module path to the lemmas' numbers, for the modules that they speak of: softmax and daGPAM.

    - ``holds``, ``assumption``: share of heads and texts where lemma 1 (softmax) or 4 (daGPAM) holds, where its
      assumption does; ``tightness``: median of bound / measured residual (self attention only);
    - ``jacobian_pos``, ``jacobian_neg``: mean over rows of lemma 3's total norm of ``J(P+)`` and ``J(P-)``, as a share
      of its maximum ``2 (1 - 1/n)``;
    - ``opposition_cosine``: how near scores are to lemma 5's ``S- = -S+``, where it is -1.
    """
    found = {}
    for path, first in observations[0].attention.items():
        if type(first.module.mechanism) in (Softmax, DaGPAM):
            found[path] = _of_module([observation.attention[path] for observation in observations])
    return found


def _of_module(seen: list[Seen]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    if seen[0].role != "cross":
        joined = lemmas.Bound(*map(torch.cat, zip(*map(bounds, seen), strict=True)))
        numbers["holds"] = float(joined.holds.double().mean())
        numbers["assumption"] = float(joined.assumption.double().mean())
        numbers["tightness"] = float((joined.right_hand_side / joined.measured).median())
    rows = [_rows(one) for one in seen]
    return numbers | {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def _weights(mechanism: DaGPAM, heads: int) -> list[Tensor]:
    """The weights of ``P+`` and ``P-``, ``[heads]`` each."""
    return [torch.as_tensor(value).double().expand(heads) for value in (mechanism.weight_pos, mechanism.weight_neg)]


def _maps(mechanism: DaGPAM) -> tuple[Tensor, Tensor]:
    """``W_Q^-`` and ``W_K^-``, the latter the identity where keys are shared."""
    query = mechanism.query_neg.double()
    return query, torch.eye(query.shape[-1]).double() if mechanism.key_neg is None else mechanism.key_neg.double()


def bounds(seen: Seen) -> lemmas.Bound:
    """Of each head, ``[heads]``."""
    module, mechanism, heads = seen.module, seen.module.mechanism, seen.module.num_heads
    x = seen.inputs.double()
    found = residual(x, RESIDUAL_TOLERANCE)
    rest = (x - found.row).expand(heads, -1, -1)
    w_q, w_k, w_v = (  # [heads, width, head_dim]
        part.weight.double().unflatten(0, (heads, -1)).mT for part in (module.q_proj, module.k_proj, module.v_proj)
    )
    if isinstance(mechanism, DaGPAM):
        weight_pos, weight_neg = _weights(mechanism, heads)
        w_neg, w_k_neg = _maps(mechanism)
        b_q = module.q_proj.bias.double().unflatten(0, (heads, -1))
        own = (rest, found.row.expand(heads, -1), w_q, b_q, w_neg, w_k @ w_k_neg)
        relu = mechanism.options.query_neg_activation == "relu"
        branches = [
            lemmas.positive_branch(weight_pos, rest, w_q, w_k),
            lemmas.negative_branch(weight_neg, *own, relu=relu),
        ]
    else:
        branches = [lemmas.positive_branch(torch.ones(heads), rest, w_q, w_k)]
    bound = lemmas.residual_bound(rest, seen.weights.double() @ seen.v.double(), w_v, branches)
    return bound._replace(assumption=bound.assumption & (not seen.causal))


def _rows(seen: Seen) -> dict[str, float]:
    mechanism, visible = seen.module.mechanism, seen.visible
    q, k = seen.q.double(), seen.k.double()
    count = visible.sum(-1)
    most = lemmas.jacobian_total_maximum(count[count > 1].double())

    def share(scores: Tensor) -> float:
        """Lemma 3's norm as a share of its maximum, mean over the rows that see several tokens."""
        rows = torch.softmax(scores.masked_fill(~visible, -torch.inf), -1)[:, count > 1]
        return float((lemmas.jacobian_total(rows) / most).mean())

    s_pos = scaled_scores(q, k)
    numbers = {"jacobian_pos": share(s_pos)}
    if isinstance(mechanism, DaGPAM):
        w_neg, w_k_neg = _maps(mechanism)
        activated = torch.relu(q) if mechanism.options.query_neg_activation == "relu" else q
        s_neg = scaled_scores(activated @ w_neg, k @ w_k_neg)
        numbers["jacobian_neg"] = share(s_neg)
        numbers["opposition_cosine"] = float(lemmas.opposition(s_pos, s_neg, visible).mean())
    return numbers
