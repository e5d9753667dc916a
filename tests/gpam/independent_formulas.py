"""Every mechanism once more, written from its source with numpy loops over (batch, head, row) in float64.

Nothing here comes from ``gpam``. ``see`` is boolean ``[batch, target, source]``. Behind it stand whichever of the
mechanism's parameters (``layer_norm.weight`` is ``layer_norm_weight``) and options a formula names, ``x`` (what queries
were made from), ``v_first`` (values of the stack's first layer) and ``layer``. Each returns the output
``[batch, heads, target, head_dim]`` and the weights. Parameters that are one a head are arrays of ``heads`` numbers.
"""

import math

import numpy as np


def who_sees_what(batch, target, source, padding=None, causal=False):
    see = np.ones((batch, target, source), dtype=bool)
    for b in range(batch):
        for i in range(target):
            for j in range(source):
                if (causal and j > i) or (padding is not None and padding[b][j]):
                    see[b, i, j] = False
    return see


def over_rows(q, k, v, see, row):
    """``row(head, query, visible keys, i, their numbers)`` gives the weights of the visible keys."""
    batch, heads, target, _ = q.shape
    weights = np.zeros((batch, heads, target, k.shape[2]))
    for b in range(batch):
        for h in range(heads):
            for i in range(target):
                seen = np.flatnonzero(see[b, i])
                if len(seen):
                    weights[b, h, i, seen] = row(h, q[b, h, i], k[b, h, seen], i, seen)
    return apply(weights, v), weights


def apply(weights, v):
    out = np.zeros((*weights.shape[:3], v.shape[-1]))
    for index in np.ndindex(weights.shape):
        b, h, i, j = index
        out[b, h, i] += weights[index] * v[b, h, j]
    return out


def exp_share(scores):
    powers = [math.exp(s - max(scores)) for s in scores]
    return np.array([p / sum(powers) for p in powers])


def softmax_row(query, keys):
    return exp_share([float(np.dot(query, key)) / math.sqrt(len(query)) for key in keys])


def erf_gelu(x):
    return np.array([0.5 * t * (1 + math.erf(t / math.sqrt(2))) for t in x.reshape(-1)]).reshape(x.shape)


def logistic(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softmax(q, k, v, see):
    return over_rows(q, k, v, see, lambda h, query, keys, i, seen: softmax_row(query, keys))


def dagpam(
    q,
    k,
    v,
    see,
    query_neg,
    lambda_pos,
    lambda_neg,
    lambdas,
    combination,
    query_neg_activation,
    key_neg=None,
    mixture=None,
):
    """``(lambda_pos + c) P+ - lambda_neg P-``; each parameter is one of all heads, or one a head."""
    if lambdas == "trainable_convex":
        lambda_pos = -logistic(4 * float(mixture))
    heads, width = q.shape[1], q.shape[3]
    maps = np.broadcast_to(query_neg, (heads, width, width))
    key_maps = np.broadcast_to(np.eye(width) if key_neg is None else key_neg, maps.shape)
    lambda_neg = lambda_pos if lambdas in ("trainable_equal", "trainable_convex") else lambda_neg
    weight_pos = np.broadcast_to(lambda_pos + (combination == "one_plus"), heads)
    weight_neg = np.broadcast_to(lambda_neg, heads)

    def row(h, query, keys, i, seen):
        negative_query = (np.maximum(query, 0) if query_neg_activation == "relu" else query) @ maps[h]
        negative_keys = [key @ key_maps[h] for key in keys]
        return weight_pos[h] * softmax_row(query, keys) - weight_neg[h] * softmax_row(negative_query, negative_keys)

    return over_rows(q, k, v, see, row)


def softmax_scaled(q, k, v, see, lambda_pos, lambda_neg):
    factor = np.broadcast_to(1 + lambda_pos - lambda_neg, q.shape[1])
    return over_rows(q, k, v, see, lambda h, query, keys, i, seen: factor[h] * softmax_row(query, keys))


def non(q, k, v, see):
    def row(h, query, keys, i, seen):
        return np.array([np.dot(query, key) / math.sqrt(len(query)) / math.sqrt(len(keys)) for key in keys])

    out, weights = over_rows(q, k, v, see, row)
    return erf_gelu(out), weights


def nap(q, k, v, see, gain, bias, layer_norm_weight, layer_norm_bias):
    def row(h, query, keys, i, seen):
        scores = np.array([np.dot(query, key) for key in keys])
        mean = sum(scores) / len(scores)
        deviation = math.sqrt(sum((s - mean) ** 2 for s in scores) / len(scores))
        return gain[h] * (scores - mean) / (deviation + 1e-3) + bias[h]

    out, weights = over_rows(q, k, v, see, row)
    batch, heads, target, width = out.shape
    final = np.zeros_like(out)
    for b in range(batch):
        for i in range(target):
            joined = np.concatenate([out[b, h, i] for h in range(heads)])
            normed = (joined - joined.mean()) / math.sqrt(joined.var() + 1e-5) * layer_norm_weight + layer_norm_bias
            for h in range(heads):
                final[b, h, i] = erf_gelu(normed)[h * width : (h + 1) * width]
    return final, weights


def coda(q, k, v, see):
    def row(h, query, keys, i, seen):
        root = math.sqrt(len(query))
        return np.array(
            [math.tanh(np.dot(query, key) / root) * 2 * logistic(-np.abs(query - key).sum() / root) for key in keys]
        )

    return over_rows(q, k, v, see, row)


def attnscale(q, k, v, see, scale):
    def row(h, query, keys, i, seen):
        low = np.full(len(keys), 1 / len(keys))
        return low + (1 + scale[h]) * (softmax_row(query, keys) - low)

    return over_rows(q, k, v, see, row)


def centered(q, k, v, see):
    return over_rows(q, k, v, see, lambda h, query, keys, i, seen: softmax_row(query, keys) - 1 / len(keys))


def shaped(q, k, v, see, identity, attention, center):
    def row(h, query, keys, i, seen):
        own = np.array([1.0 if j == i else 0.0 for j in seen])
        return identity[h] * own + attention[h] * softmax_row(query, keys) - center[h] / len(keys)

    return over_rows(q, k, v, see, row)


def gfsa(q, k, v, see, high_order, gfsa_order, gfsa_identity):
    _, attention = softmax(q, k, v, see)
    weights = np.zeros_like(attention)
    for b, h in np.ndindex(attention.shape[:2]):
        a = attention[b, h]
        own = np.diag([1.0 if see[b, i, i] else 0.0 for i in range(len(a))])
        square = np.array(
            [[sum(a[i, m] * a[m, j] for m in range(len(a))) for j in range(len(a))] for i in range(len(a))]
        )
        weights[b, h] = gfsa_identity * own + a + high_order[h] * (a + (gfsa_order - 1) * (square - a))
    return apply(weights, v), weights


def cog(q, k, v, see):
    def row(h, query, keys, i, seen):
        scores = [np.dot(query, key) / math.sqrt(len(query)) for key in keys]
        return np.sign(scores) * exp_share([abs(s) for s in scores])

    return over_rows(q, k, v, see, row)


def sigmoid(q, k, v, see, sigmoid_length):
    def row(h, query, keys, i, seen):
        n = sigmoid_length or len(keys)
        return np.array([logistic(np.dot(query, key) / math.sqrt(len(query)) - math.log(n)) for key in keys])

    return over_rows(q, k, v, see, row)


def neutreno(q, k, v, see, v_first, neutreno_lambda):
    out, weights = softmax(q, k, v, see)
    return out + neutreno_lambda * (v_first - v), weights


def gated(q, k, v, see, x, gate_proj_weight):
    """``gate_proj_weight`` is ``[gates, embed_dim]``; gates are those of head 0, then of head 1, and so on."""
    out, weights = softmax(q, k, v, see)
    _, heads, _, width = out.shape
    per_head = len(gate_proj_weight) // heads
    for b, h, i, c in np.ndindex(out.shape):
        gate = gate_proj_weight[h * per_head + (c if per_head == width else 0)]
        out[b, h, i, c] *= logistic(np.dot(gate, x[b, i]))
    return out, weights


def differential(q, k, v, see, lambda_q1, lambda_k1, lambda_q2, lambda_k2, head_norm_weight, layer):
    initial = 0.8 - 0.6 * math.exp(-0.3 * layer)
    share = math.exp(np.dot(lambda_q1, lambda_k1)) - math.exp(np.dot(lambda_q2, lambda_k2)) + initial
    batch, heads, target, width = q.shape
    out, weights = np.zeros_like(q), np.zeros((batch, heads // 2, target, k.shape[2]))
    for b, pair, i in np.ndindex(batch, heads // 2, target):
        seen = np.flatnonzero(see[b, i])
        one, two = 2 * pair, 2 * pair + 1
        if len(seen):
            first = softmax_row(q[b, one, i], k[b, one, seen])
            weights[b, pair, i, seen] = first - share * softmax_row(q[b, two, i], k[b, two, seen])
        joined = sum(weights[b, pair, i, j] * np.concatenate([v[b, one, j], v[b, two, j]]) for j in range(k.shape[2]))
        normed = joined / math.sqrt((joined**2).mean() + 1e-5) * head_norm_weight * (1 - initial)
        out[b, one, i], out[b, two, i] = normed[:width], normed[width:]
    return out, weights


def differential_v2(q, k, v, see, x, query_second_weight, share_proj_weight):
    batch, heads, target, width = q.shape
    weights = np.zeros((batch, heads, target, k.shape[2]))
    for b, h, i in np.ndindex(batch, heads, target):
        seen = np.flatnonzero(see[b, i])
        if len(seen):
            second = query_second_weight[h * width : (h + 1) * width] @ x[b, i]
            share = logistic(np.dot(share_proj_weight[h], x[b, i]))
            weights[b, h, i, seen] = softmax_row(q[b, h, i], k[b, h, seen]) - share * softmax_row(second, k[b, h, seen])
    return apply(weights, v), weights


contranorm = softmax  # its own part comes after the block


def contranorm_after_block(x, see, scale, temperature, cosine):
    out = x.copy()
    for b, i in np.ndindex(x.shape[:2]):
        seen = np.flatnonzero(see[b, i])
        unit = [row / np.linalg.norm(row) if cosine else row for row in x[b]]
        if len(seen):
            share = exp_share([float(np.dot(unit[i], unit[j])) / temperature for j in seen])
            out[b, i] = x[b, i] - scale * sum(p * x[b, j] for p, j in zip(share, seen, strict=True))
    return out
