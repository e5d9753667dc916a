"""The paper's lemmas on the layers of a model: how tight the bounds are, how often they hold, how near assumptions are.

Lemmas 1 and 4 speak of self attention without a mask; where there is one (a decoder) their inequality is looked at all
the same, and counted as outside their assumption.
"""

import torch
from torch import Tensor

from gpam.analysis import lemmas, residual
from gpam.attention.mechanisms.dagpam import DaGPAM
from gpam.attention.mechanisms.softmax import Softmax
from gpam.attention.reference import scaled_scores
from gpam_suite.inside.measures import RESIDUAL_TOLERANCE
from gpam_suite.inside.observe import Observation, Seen


def check(observations: list[Observation]) -> dict[str, dict[str, float]]:
    """Module path to the lemmas' numbers, for the modules that they speak of: softmax and daGPAM.

    - ``holds``, ``assumption``: share of heads and texts where lemma 1 (softmax) or 4 (daGPAM) holds, where its
      assumption does; ``tightness``, ``tightness_before``: medians of bound / measured residual, of the right-hand
      side and of the sharper bound before it (self attention only);
    - ``jacobian_pos``, ``jacobian_neg``: mean over rows of lemma 3's total norm of ``J(P+)`` and ``J(P-)``, as a share
      of its maximum ``2 (1 - 1/n)``;
    - ``opposition_distance``, ``opposition_cosine``: how far scores are from lemma 5's ``S- = -S+`` (0 and -1 where
      they are there), ``query_neg_distance``: ``||W_Q^- + I||_F / ||I||_F``; ``gain``: mean over rows of lemma
      5's total norm of ``(1 + lambda+) J(P+) + lambda- J(P-)`` over that of ``J(P+)``.
    """
    found = {}
    for path in observations[0].attention:
        seen = [observation.attention[path] for observation in observations]
        if type(seen[0].module.mechanism) in (Softmax, DaGPAM):
            found[path] = _of_module(seen)
    return found


def _of_module(seen: list[Seen]) -> dict[str, float]:
    mechanism = seen[0].module.mechanism
    numbers: dict[str, float] = {}
    if mechanism.site.role != "cross":
        found = [bounds(one) for one in seen]
        joined = lemmas.Bound(*(torch.cat(parts) for parts in zip(*found, strict=True)))
        numbers["holds"] = float(joined.holds.double().mean())
        numbers["assumption"] = float(joined.assumption.double().mean())
        numbers["tightness"] = float((joined.right_hand_side / joined.measured).median())
        numbers["tightness_before"] = float((joined.before / joined.measured).median())
    rows = [_rows(one) for one in seen]
    return numbers | {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def _per_head(weight: Tensor, heads: int) -> Tensor:
    """``W`` of a projection, ``[heads, width, head_dim]``."""
    return weight.detach().double().unflatten(0, (heads, -1)).transpose(1, 2)


def _lambdas(mechanism: DaGPAM, heads: int) -> tuple[Tensor, Tensor]:
    pair = (mechanism.weight_pos, mechanism.lambda_neg)
    return tuple(torch.as_tensor(value).detach().double().expand(heads) for value in pair)


def bounds(seen: Seen) -> lemmas.Bound:
    """Of each head, ``[heads]``."""
    module, mechanism, heads = seen.module, seen.module.mechanism, seen.module.num_heads
    x = seen.inputs.double()
    found = residual(x, RESIDUAL_TOLERANCE)
    rest = (x - found.row).expand(heads, -1, -1)
    w_q, w_k, w_v = (_per_head(part.weight, heads) for part in (module.q_proj, module.k_proj, module.v_proj))
    output = seen.weights.double() @ seen.v.double()
    if not isinstance(mechanism, DaGPAM):
        branches = [lemmas.positive_branch(torch.ones(heads), rest, w_q, w_k)]
    else:
        weight_pos, lambda_neg = _lambdas(mechanism, heads)
        b_q = module.q_proj.bias.detach().double().unflatten(0, (heads, -1))
        w_neg = mechanism.query_neg.detach().double()
        w_k_neg = w_k if mechanism.key_neg is None else w_k @ mechanism.key_neg.detach().double()
        relu = mechanism.options.query_neg_activation == "relu"
        row = found.row.expand(heads, -1)
        branches = [
            lemmas.positive_branch(weight_pos, rest, w_q, w_k),
            lemmas.negative_branch(-lambda_neg, rest, row, w_q, b_q, w_neg, w_k_neg, relu=relu),
        ]
    bound = lemmas.residual_bound(rest, output, w_v, branches)
    return bound._replace(assumption=bound.assumption & (not seen.causal))


def _rows(seen: Seen) -> dict[str, float]:
    mechanism, visible = seen.module.mechanism, seen.visible
    q, k = seen.q.double(), seen.k.double()
    several = visible.sum(-1) > 1
    most = 2 * (1 - 1 / visible.sum(-1)[several].double())

    def softmax(scores: Tensor) -> Tensor:
        return torch.softmax(scores.masked_fill(~visible, -torch.inf), -1)[:, several]

    s_pos = scaled_scores(q, k)
    p_pos = softmax(s_pos)
    total_pos = lemmas.jacobian_total(p_pos)
    numbers = {"jacobian_pos": float((total_pos / most).mean())}
    if isinstance(mechanism, DaGPAM):
        double = mechanism.query_neg.detach().double()
        activated = torch.relu(q) if mechanism.options.query_neg_activation == "relu" else q
        k_neg = k if mechanism.key_neg is None else k @ mechanism.key_neg.detach().double()
        s_neg = scaled_scores(activated @ double, k_neg)
        p_neg = softmax(s_neg)
        found = lemmas.opposition(s_pos, s_neg, visible)
        identity = torch.eye(double.shape[-1], dtype=torch.float64)
        weight_pos, lambda_neg = _lambdas(mechanism, len(q))
        # J(P+) and J(P-) have one sign pattern, positive on the diagonal alone, so their totals add up.
        both = weight_pos[:, None] * total_pos + lambda_neg[:, None] * lemmas.jacobian_total(p_neg)
        numbers |= {
            "jacobian_neg": float((lemmas.jacobian_total(p_neg) / most).mean()),
            "opposition_distance": float(found.distance.mean()),
            "opposition_cosine": float(found.cosine.mean()),
            "query_neg_distance": float(
                (torch.linalg.matrix_norm(double + identity) / torch.linalg.matrix_norm(identity)).mean()
            ),
            "gain": float(both.mean() / total_pos.mean()),
        }
    return numbers
