"""Every registered mechanism: module against the independent formula, claims, parameters."""

import copy
import dataclasses
import io
import threading

import independent_formulas as independent
import pytest
import torch
from mechanism_cases import (
    EMBED,
    HEAD_DIM,
    HEADS,
    LAYER,
    ONE_DIRECTION,
    PADDING,
    Called,
    Inputs,
    every_case,
    every_name,
    independent_call,
    inputs,
    stands_across,
)
from torch.func import grad, vmap
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from gpam.attention import Site, build, functional, mechanism_class, names, options_of, parts
from gpam.attention.backends.workspace import POOL
from gpam.attention.base import Mechanism, StackMemory
from gpam.attention.options import option
from gpam.attention.registry import all_options, register
from gpam.errors import UsageError

EXACT = {"rtol": 1e-9, "atol": 1e-11}


@every_case
@pytest.mark.parametrize("setting", ["plain", "causal", "padded", "causal_padded", "cross"])
def test_the_module_equals_the_independent_formula(case, setting):
    called = Called(case)
    if setting == "cross" and not stands_across(called.name):
        pytest.skip("keeps softmax in cross attention")
    given = inputs(target=2, source=5) if setting == "cross" else inputs()
    padding = PADDING if "padded" in setting else None
    causal = setting.startswith("causal")
    masks = {"key_padding_mask": None if padding is None else torch.tensor(padding), "causal": causal}
    wanted_output, wanted_weights = independent_call(called, given, padding, causal)
    with torch.no_grad():
        plain, none = called(given, **masks)
        output, weights = called(given, **masks, need_weights=True)
    assert none is None
    assert_close(plain, wanted_output, **EXACT)
    assert_close(output, wanted_output, **EXACT)
    assert_close(weights, wanted_weights, **EXACT)


@every_case
@pytest.mark.parametrize("setting", ["causal", "cross"])
def test_gradients_equal_the_slope_of_the_independent_formula(case, setting):
    """With weights and without, along one random direction of all inputs and parameters, by a central difference."""
    called, step, causal = Called(case), 1e-6, setting == "causal"
    if not causal and not stands_across(called.name):
        pytest.skip("keeps softmax in cross attention")
    given = (inputs() if causal else inputs(target=2, source=5)).map(lambda tensor: tensor.requires_grad_())
    padding = [[False] * 4 + [True], [False] * 5, [False] * 5]
    masks = {"key_padding_mask": torch.tensor(padding), "causal": causal}
    generator = torch.Generator().manual_seed(3)

    def drawn(tensor):
        return torch.randn(tensor.shape, generator=generator, dtype=torch.float64)

    outputs = [called(given, **masks, need_weights=wanted)[0] for wanted in (False, True)]
    wrt, along = [*given.tensors().values(), *called.mechanism.parameters()], drawn(outputs[0])
    moves = [drawn(tensor) for tensor in wrt]
    every = [torch.autograd.grad(output, wrt, along, allow_unused=True, materialize_grads=True) for output in outputs]

    def formula_at(distance):
        with torch.no_grad():
            for tensor, move in zip(wrt, moves, strict=True):
                tensor.add_(distance * move)
        return independent_call(called, given, padding, causal)[0]

    ahead, behind = formula_at(step), formula_at(-2 * step)
    wanted = ((ahead - behind) * along).sum() / (2 * step)
    for gradients in every:
        slope = sum((gradient * move).sum() for gradient, move in zip(gradients, moves, strict=True))
        assert_close(slope, wanted, rtol=1e-6, atol=1e-7)
        assert_close(gradients, every[0], **EXACT)


@every_name
@pytest.mark.parametrize("length", [1, 3, 63])
def test_odd_lengths(case, length):
    called, given = Called(case), inputs(target=length, batch=2)
    with torch.no_grad():
        output, _ = called(given, causal=True)
        wanted, _ = independent_call(called, given, causal=True)
    assert_close(output, wanted, **EXACT)


@every_case
@pytest.mark.parametrize("need_weights", [False, True])
def test_every_dropout_has_the_sites_rate_and_its_place(case, need_weights, monkeypatch):
    """Whichever of the two ways a mechanism draws by; of one branch both places are one."""
    called, seen = Called(case, dropout=0.4), []
    make_problem, dropout = functional.make_problem, torch.nn.functional.dropout

    def of_a_call(queries, *given, **options):
        seen.append((options["dropout"], options["dropout_on"] if len(queries) > 1 else None))
        return make_problem(queries, *given, **options)

    def of_weights(weights, rate):
        seen.append((rate, None))
        return dropout(weights, rate)

    monkeypatch.setattr(functional, "make_problem", of_a_call)
    monkeypatch.setattr(torch.nn.functional, "dropout", of_weights)
    called.mechanism.train()
    called(inputs(), need_weights=need_weights)
    own = "combined" if called.name.startswith("differential") else getattr(called.options, "dropout_on", "branches")
    seen = seen[1:] if called.mechanism.needs_every_layer else seen  # the first layer's, in evaluation
    assert seen and all(rate == 0.4 and where in (None, own) for rate, where in seen), (seen, own)


@every_case
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_row_that_sees_nothing(case, need_weights):
    """All padding: zero weights, a finite output and finite gradients, and the other sentences as ever."""
    called = Called(case)
    given = inputs().map(lambda tensor: tensor.requires_grad_())
    mask = torch.tensor([[True] * 5, [False] * 5, [True, True, False, False, False]])
    output, weights = called(given, key_padding_mask=mask, causal=True, need_weights=need_weights)
    wrt = [*(t for t in given.tensors().values()), *called.mechanism.parameters()]
    gradients = [g for g in torch.autograd.grad(output.sum(), wrt, allow_unused=True) if g is not None]
    assert output.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)
    if need_weights:
        assert (weights[0] == 0).all() and (weights[2, :, :2] == 0).all()
    if called.name not in ("nap", "neutreno"):  # nap adds its LayerNorm's bias, neutreno the position's own values
        assert (output[0] == 0).all()
    alone, _ = called(given.map(lambda tensor: tensor[1:2]), causal=True)
    assert_close(output[1:2], alone, **EXACT)


@every_case
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_stands_at_padded_keys_and_values_is_not_seen(case, need_weights, value):
    called, padding = Called(case), torch.tensor(PADDING)
    found = []
    for spoiled in (0.0, value):
        given = inputs()
        for name in ("k", "v"):
            setattr(given, name, getattr(given, name).masked_fill(padding[:, None, :, None], spoiled))
        given = given.map(lambda tensor: tensor.requires_grad_())
        output, weights = called(given, key_padding_mask=padding, need_weights=need_weights)
        read = output[~padding]  # a padded target may have a value of its own
        wrt = [given.q, given.k, given.v, *called.mechanism.parameters()]
        gradients = torch.autograd.grad(read.square().sum(), wrt, allow_unused=True, materialize_grads=True)
        found.append([read, *gradients, *([weights] if need_weights else [])])
        if called.name != "differential_v2":  # which has its weights beside its output alone
            found[-1].append(called.mechanism.weights(given.q, given.k, key_padding_mask=padding))
    for got, wanted in zip(found[1], found[0], strict=True):
        assert_close(got, wanted, **EXACT)


@every_case
@pytest.mark.parametrize("need_weights", [False, True])
def test_what_stands_at_padded_targets_is_their_own(case, need_weights):
    called, padding = Called(case), torch.tensor(PADDING)
    found = []
    for spoiled in (0.0, float("nan")):
        given = inputs()
        for name, tensor in given.tensors().items():
            hidden = padding[:, None, :, None] if tensor.dim() == 4 else padding[:, :, None]
            setattr(given, name, tensor.masked_fill(hidden, spoiled))
        output, weights = called(given, key_padding_mask=padding, need_weights=need_weights)
        found.append([output[~padding], *([weights.transpose(1, 2)[~padding]] if need_weights else [])])
    for got, wanted in zip(*reversed(found), strict=True):
        assert_close(got, wanted, **EXACT)


@every_case
@pytest.mark.parametrize("padding", [None, PADDING])
def test_step_by_step_equals_all_at_once(case, padding):
    """Also after the sentences were put in another order in the middle, as beam search does."""
    called, given = Called(case), inputs()
    mask = None if padding is None else torch.tensor(padding)
    state, order = {}, torch.tensor([0, 1, 2])
    with torch.no_grad():
        whole, _ = called(given, key_padding_mask=mask, causal=True)
        for step in range(5):
            if step == 3:
                order = torch.tensor([2, 0, 0])
                assert all(tensor.shape[0] == 3 for tensor in state.values())
                state = {name: tensor[order] for name, tensor in state.items()}
            now = inputs().map(lambda tensor: tensor[order])  # noqa: B023
            now.q, now.x = now.q[:, :, step : step + 1], now.x[:, step : step + 1]
            now.k, now.v, now.v_first = (t[:, :, : step + 1] for t in (now.k, now.v, now.v_first))
            part = None if mask is None else mask[order, : step + 1]
            output, _ = called(now, key_padding_mask=part, state=state)
            assert_close(output[:, 0], whole[order, step], **EXACT)


@every_case
def test_claims_about_the_weights(case):
    called, given = Called(case), inputs(target=6)
    mask = torch.tensor([[False] * 4 + [True] * 2, [False] * 6, [False] * 6])
    with torch.no_grad():
        _, weights = called(given, key_padding_mask=mask, causal=True, need_weights=True)
        rows, total = weights.sum(-1), called.mechanism.row_sum()
        low, high = (torch.as_tensor(bound).reshape(-1, 1, 1) for bound in called.mechanism.weight_range())
    if total is not None:
        claimed = torch.as_tensor(total, dtype=rows.dtype).reshape(-1, 1).expand_as(rows)
        seen = ~mask[:, None, :].expand_as(rows)
        assert_close(rows[seen], claimed[seen], **EXACT)
    else:
        assert rows.var() > 1e-6
    assert (weights >= low - 1e-12).all() and (weights <= high + 1e-12).all()
    facts = called.mechanism.facts
    assert facts.negative or (weights >= 0).all()
    assert facts.formula and facts.source and facts.row_sum and facts.weight_range


@every_case
def test_sums_of_what_is_learned_are_not_rounded_in_bfloat16(case):
    """As ``1 + lambda+``, which in it moves in steps of 1/128. nap's rows know only whether they have a sum."""
    half = Called(case).mechanism.bfloat16()
    exact = copy.deepcopy(half).double()
    for found, wanted in zip(*((one.row_sum(), *one.weight_range()) for one in (half, exact)), strict=True):
        if found is not None:
            sides = (torch.as_tensor(side, dtype=torch.float64) for side in (found, wanted))
            assert_close(*sides, rtol=1e-6, atol=1e-6)


@every_name
def test_facts_say_where_it_stands(case):
    name, _ = case
    cls, options = mechanism_class(name), options_of(name)
    for role, stands in (("encoder", True), ("decoder", True), ("cross", cls.facts.cross)):
        built = build(name, Site(EMBED, HEADS, role, LAYER, 3))
        assert cls.used_at(Site(EMBED, HEADS, role, LAYER, 3), options) == stands
        assert type(built) is (cls if stands else mechanism_class("softmax"))
    assert cls.facts.limits or cls.facts.cross


@pytest.mark.parametrize(
    "name", ["softmax", "dagpam", "softmax_scaled", "attnscale", "centered", "shaped", "gfsa", "nap"]
)
def test_row_sum_at_the_start(name):
    mechanism = build(name, Site(EMBED, HEADS))
    wanted = {"centered": 0.0, "nap": 0.0}.get(name, 1.0)
    assert_close(torch.as_tensor(mechanism.row_sum()).mean().item(), wanted)


def test_what_is_learned_begins_as_its_source_says():
    torch.manual_seed(0)
    site, wide = Site(64, 4), Site(512, 8)
    assert not build("attnscale", site).scale.any()
    assert all((parameter == 1).all() for parameter in build("shaped", site).parameters())
    assert (build("nap", site).gain == 1).all()
    assert build("gated", wide).gate_proj.weight.std().item() == pytest.approx(0.02, rel=0.01)
    second, bound = build("differential_v2", wide).query_second.weight, (6 / 1024) ** 0.5 / 2**0.5
    assert second.abs().max() <= bound and second.std().item() == pytest.approx(bound / 3**0.5, rel=0.01)
    of_heads = {"query_neg_init": "xavier", "query_neg_heads": "per_head"}
    per_head, bound = build("dagpam", site, of_heads).query_neg, (6 / 32) ** 0.5
    assert 0.9 * bound < per_head.abs().max() <= bound
    assert per_head.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    for share in (0.1, 0.5, 0.9):
        options = {"lambdas": "trainable_convex", "lambda_pos": -share, "lambda_neg": -share}
        assert build("dagpam", site, options).weight_neg.item() == pytest.approx(share, rel=1e-5)


BOUNDS = {"softmax": (0, 1), "sigmoid": (0, 1)} | dict.fromkeys(["centered", "coda", "cog", "differential_v2"], (-1, 1))


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_of_a_weight_are_no_wider_than_the_formulas(name):
    found = build(name, Site(EMBED, HEADS, "decoder", LAYER, 3)).weight_range()
    assert tuple(map(float, found)) == BOUNDS[name]


def test_differential_starts_near_its_initial_lambda():
    for layer, initial in ((0, 0.2), (1, 0.8 - 0.6 * 2.718281828459045**-0.3)):
        torch.manual_seed(0)
        mechanism = build("differential", Site(512, 8, layer=layer, layers=2))
        assert mechanism.lambda_init == pytest.approx(initial)
        assert mechanism.row_sum().item() == pytest.approx(1 - initial, abs=0.3)
        assert mechanism.lambda_q1.std().item() == pytest.approx(0.1, abs=0.03)


def test_neutreno_first_layer_is_softmax():
    first, given = Called(("neutreno", {})).first, inputs()
    output, _ = first(given.q, given.k, given.v, causal=True)
    wanted, _ = independent_call(Called(("softmax", {})), given, causal=True)
    assert_close(parts.merge_heads(output), wanted, **EXACT)


@every_case
@pytest.mark.parametrize("role", ["encoder", "cross"])
def test_predicted_parameters(case, role):
    name, options = case
    for width, heads in ((16, 4), (24, 2)):
        site = Site(width, heads, role, LAYER, 3)
        cls, checked = mechanism_class(name), options_of(name, options)
        predicted = cls.facts.extra_parameters(site, checked) if cls.used_at(site, checked) else 0
        assert sum(p.numel() for p in build(name, site, options).parameters()) == predicted


@pytest.mark.parametrize(("target", "source"), [(6, 6), (3, 7)])
@every_case
def test_predicted_flops(case, target, source):
    """Against torch's own count of the plain formula for one sentence."""
    if target != source and not stands_across(case[0]):
        pytest.skip("stands in self attention only")
    called, given = Called(case), inputs(target=target, source=source, batch=1)
    if called.mechanism.needs_every_layer:
        with torch.no_grad():
            called.first(given.q, given.k, given.v_first)
    l1 = {torch.ops.aten._cdist_forward: lambda q, k, *_, out_shape=None, **__: 2 * q[0] * q[1] * k[1] * q[2]}
    with FlopCounterMode(display=False, custom_mapping=l1) as counter, torch.no_grad():
        plain = called.name != "gfsa"  # its weights cost a product that its output does without
        output, _ = called.mechanism(given.q, given.k, given.v, query_input=given.x, need_weights=plain)
        called.mechanism.after_heads(parts.merge_heads(output))
        if called.name == "contranorm":
            (given.x @ given.x.mT) @ given.x  # its similarities, and the sum over them
    site = called.mechanism.site
    assert called.mechanism.facts.flops(site, target, source, called.options) == counter.get_total_flops()


@every_name
def test_gradients_of_single_sentences_by_torch_func(case):
    """``vmap(grad(...))``, as for a gradient's variance over a batch."""
    called, given = Called(case), inputs()
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True

    def score(padding, *tensors):
        return called(Inputs(*tensors), key_padding_mask=padding)[0].square().sum()

    def of_one(padding, *tensors):
        return score(*(tensor[None] for tensor in (padding, *tensors)))

    queries = given.q.requires_grad_()
    together = torch.autograd.grad(score(padding, *given.tensors().values()), queries)[0]
    given.q = queries.detach()
    one_by_one = vmap(grad(of_one, argnums=1))(padding, *given.tensors().values())
    assert_close(one_by_one, together, **EXACT)


@every_case
def test_copies_and_state_dicts_are_the_same_mechanism_and_independent(case):
    """A model may be copied after it ran, as an average of its weights needs."""
    called, other, given = Called(case), Called(case, seed=2), inputs().map(lambda tensor: tensor.requires_grad_())
    before = called(given)[0]
    first, again = copy.deepcopy((called.first, called.mechanism))
    assert first.stack is again.stack and again.stack is not called.mechanism.stack and not again.stack.tensors
    file = io.BytesIO()
    torch.save(called.mechanism.state_dict(), file)
    file.seek(0)
    other.mechanism.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        for parameter in called.mechanism.parameters():
            parameter.add_(1.0)
    called.first, called.mechanism = first, again
    assert_close(called(given)[0], before, rtol=0, atol=0)
    assert_close(other(given)[0], before, rtol=0, atol=0)


@every_case
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)])
def test_low_precision_is_close(case, dtype, tolerance):
    exact, rough = Called(case), Called(case)
    rough.mechanism.to(dtype), rough.first.to(dtype)
    exact.mechanism.load_state_dict(rough.mechanism.state_dict())
    given = inputs(target=31, dtype=dtype)
    mask = torch.zeros(3, 31, dtype=torch.bool)
    mask[0, 20:] = True
    with torch.no_grad():
        output, _ = rough(given, key_padding_mask=mask, causal=True)
        wanted, _ = exact(given.map(torch.Tensor.double), key_padding_mask=mask, causal=True)
        again, weights = rough(given, key_padding_mask=mask, causal=True, need_weights=True)
    assert output.dtype == again.dtype == weights.dtype == dtype
    error = (output.double() - wanted)[~mask].norm() / wanted[~mask].norm()
    assert error < tolerance, error


@every_case
@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout(case, need_weights):
    """Drawn in training only, and never part of the weights returned."""
    called, given = Called(case, dropout=0.4), inputs(target=3, batch=1)
    with torch.no_grad():
        steady, weights = called(given, need_weights=True)
        called.mechanism.train()
        torch.manual_seed(0)
        draws = [called(given, need_weights=need_weights) for _ in range(2)]
        assert (draws[0][0] != draws[1][0]).any() and (draws[0][0] != steady).any()
        if need_weights:
            assert_close(draws[0][1], weights, **EXACT)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("name", ["attnscale", "centered", "shaped", "gfsa", "coda", "cog", "nap", "non", "sigmoid"])
def test_dropout_falls_on_the_weights(name, need_weights, monkeypatch):
    """GFSA's on A, before it is squared."""
    given, mechanism = inputs(), Called((name, {}), dropout=0.5).mechanism
    mask = 2.0 * (torch.rand(3, HEADS, 5, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64) < 0.5)
    wanted = (mechanism.weights(given.q, given.k) * mask) @ given.v
    if name == "gfsa":
        dropped = torch.softmax(given.q @ given.k.mT / HEAD_DIM**0.5, -1) * mask
        _, first, second = map(parts.per_head, mechanism.factors)
        wanted = first * dropped @ given.v + second * dropped @ (dropped @ given.v)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda weights, p: weights * mask)
    output, _ = mechanism.train()(given.q, given.k, given.v, need_weights=need_weights)
    assert_close(output, wanted, **EXACT)


def test_dropout_keeps_the_mean():
    called = Called(("sigmoid", {}), dropout=0.4)
    called.mechanism.train()
    torch.manual_seed(0)
    dropped = called.mechanism.dropped(torch.ones(100_000))
    assert_close(dropped.unique(), torch.tensor([0, 1 / 0.6]), rtol=1e-6, atol=0)
    assert abs(dropped.mean() - 1) < 0.02  # of a standard deviation of 0.003


@every_name
def test_unknown_option_and_wrong_value(case):
    name, _ = case
    site = Site(EMBED, HEADS, layer=1, layers=3)
    with pytest.raises(UsageError, match="has no option 'lambda_positive'"):
        build(name, site, {"lambda_positive": 1})
    for own, field in all_options().items():
        if hasattr(options_of(name), own):
            with pytest.raises(UsageError, match=f"option '{own}' of attention '{name}': got"):
                build(name, site, {own: "no such thing"})
        if hasattr(options_of(name), own) and field.metadata["minimum"] is not None:
            with pytest.raises(UsageError, match="wanted at least"):
                build(name, site, {own: field.metadata["minimum"] - (1 if isinstance(field.default, int) else 1e-9)})


@every_name
def test_tensors_of_another_shape_are_named(case):
    called = Called(case)
    heads = called.mechanism.site.num_heads
    q = torch.randn(2, heads, 4, called.mechanism.site.head_dim, dtype=torch.float64)
    wide = torch.cat([q, q], -1)
    for wrong in (q[0], q[:1], q.float(), wide, torch.cat([q, q], 1)):
        for given in ((wrong, q, q), (q, wrong, q), (wide, wide, wide)):
            if wrong.dim() != 4 or wrong.shape[1] == heads or given[0] is wrong:
                with pytest.raises(UsageError, match=f"wanted .batch, {heads} heads, length, head_dim"):
                    called.mechanism(*given)


@every_name
def test_an_empty_batch_has_an_empty_output_and_gradients_of_zero(case):
    called = Called(case, dropout=0.1)
    called.mechanism.train()
    given = inputs(batch=0).map(lambda tensor: tensor.requires_grad_())
    for need_weights in (False, True):
        for causal in (False, True):
            padding = torch.zeros(0, 5, dtype=torch.bool)
            output, _ = called(given, key_padding_mask=padding, causal=causal, need_weights=need_weights)
            assert output.shape == (0, 5, EMBED)
            output.sum().backward()
    assert all(not p.grad.any() for p in called.mechanism.parameters() if p.grad is not None)


@every_name
@pytest.mark.parametrize("wrong", [torch.zeros(1, 5).bool(), torch.zeros(5, 3).bool(), torch.ones(3, 5)])
def test_a_wrong_padding_mask_is_named_whatever_is_asked_for(case, wrong):
    called, given = Called(case), inputs()
    for need_weights in (False, True):
        with pytest.raises(UsageError, match=r"key_padding_mask must be a bool tensor of shape \[batch=3, source=5\]"):
            called(given, key_padding_mask=wrong, need_weights=need_weights)


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ({"role": "Decoder"}, "role: got 'Decoder', wanted one of encoder, decoder, cross"),
        ({"layer": 7, "layers": 4}, "got layer 7 of 4 layers, wanted one from 0 to below their number"),
    ],
)
def test_a_place_that_is_none_is_named(place, sentence):
    with pytest.raises(UsageError, match=sentence):
        build("cog", Site(EMBED, HEADS, **place))


@pytest.mark.parametrize("backend", ["materialised", "tiled"])
def test_memory_kept_from_inference_mode_serves_a_training(backend):
    called, given = Called(("dagpam", {})), inputs()
    called.mechanism.backend = backend
    POOL.clear()
    with torch.inference_mode():
        called(given)
    called(given)[0].sum().backward()


def test_errors_of_single_mechanisms():
    with pytest.raises(UsageError, match="got 3 heads, wanted an even number"):
        build("differential", Site(12, 3))
    with pytest.raises(UsageError, match="got a stack of 2, wanted 3 layers or more"):
        build("cog", Site(16, 4, layer=0, layers=2))
    given = inputs()
    lonely = build("neutreno", Site(EMBED, HEADS, layer=1, layers=3)).double()
    with pytest.raises(UsageError, match=r"needs the first layer's values .* got none"):
        lonely(given.q, given.k, given.v)
    for name in ("gated", "differential_v2"):
        with pytest.raises(UsageError, match="got no query_input"):
            build(name, Site(EMBED, HEADS)).double()(given.q, given.k, given.v)
        queries = given.map(lambda tensor: tensor[:1])  # of one sentence [target, batch, width] fits by accident
        for wrong in (torch.randn(queries.q.shape[2], 1, EMBED), torch.randn(1, queries.q.shape[2], 2)):
            with pytest.raises(UsageError, match=r"got one of shape .*, wanted \[batch, target, width\] = "):
                mechanism = build(name, Site(EMBED, HEADS)).double()
                mechanism(queries.q, queries.k, queries.v, query_input=wrong.double())
    with pytest.raises(UsageError, match="cannot give weights"):
        build("gfsa", Site(EMBED, HEADS)).double()(given.q, given.k, given.v, need_weights=True, state={})


def test_cog_layers():
    kept = [type(build("cog", Site(EMBED, HEADS, layer=layer, layers=4))).__name__ for layer in range(4)]
    assert kept == ["Softmax", "Cog", "Cog", "Softmax"]
    everywhere = build("cog", Site(EMBED, HEADS), {"cog_softmax_layers": "none"})
    assert type(everywhere).__name__ == "Cog"


def test_threads_do_not_read_each_others_values():
    memory, seen = StackMemory(), []
    memory.tensors["values"] = torch.ones(1)
    thread = threading.Thread(target=lambda: seen.append(dict(memory.tensors)))
    thread.start()
    thread.join()
    assert seen == [{}] and "values" in memory.tensors


def test_neutreno_leaves_nothing_behind():
    """The last layer takes the first one's values away, so that no graph outlives its pass."""
    called, given = Called(("neutreno", {})), inputs()
    last = build("neutreno", Site(EMBED, HEADS, layer=2, layers=3)).double()
    last.stack = called.mechanism.stack
    called(given)
    assert last.stack.tensors
    last(given.q, given.k, given.v)
    assert not last.stack.tensors


def test_neutreno_takes_no_values_without_gradients():
    """A first layer that is checkpointed alone makes its values without them; they would stand as constants."""
    called, given = Called(("neutreno", {})), inputs()
    second = build("neutreno", Site(EMBED, HEADS, layer=1, layers=3)).double()
    second.stack = called.mechanism.stack
    with torch.no_grad():
        called(given)
        second(given.q, given.k, given.v)
    with pytest.raises(UsageError, match="all with gradients or all without"):
        second(given.q, given.k, given.v)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("causal", [False, True])
def test_contranorm_after_block(similarity, causal):
    """Against the independent formula and against finite differences, and step by step."""
    options = {"contranorm_similarity": similarity, "contranorm_scale": 0.3, "contranorm_temperature": 1.5}
    mechanism = Called(("contranorm", options)).mechanism
    x, mask = inputs().x.requires_grad_(), torch.tensor(PADDING)
    see = independent.who_sees_what(3, 5, 5, PADDING, causal)
    wanted = independent.contranorm_after_block(x.detach().numpy(), see, 0.3, 1.5, similarity == "cosine")

    def after_block(x):
        return mechanism.after_block(x, key_padding_mask=mask, causal=causal)

    assert_close(after_block(x), torch.from_numpy(wanted), **EXACT)
    assert torch.autograd.gradcheck(after_block, (x,), **ONE_DIRECTION)
    state, order = {}, torch.tensor([0, 1, 2])
    whole = mechanism.after_block(x, key_padding_mask=mask, causal=True)
    for step in range(5):
        if step == 3:
            order = torch.tensor([2, 0, 0])
            state = {name: tensor[order] for name, tensor in state.items()}
        part = mechanism.after_block(x[order, step : step + 1], key_padding_mask=mask[order, : step + 1], state=state)
        assert_close(part[:, 0], whole[order, step], **EXACT)


@every_case
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_autocast_of_float32_inputs(case, need_weights, half):
    """Values and gradients are those of float32 within what half precision can hold."""
    called = Called(case, dtype=torch.float32)
    given = inputs(dtype=torch.float32).map(lambda tensor: tensor.requires_grad_())
    options = {"key_padding_mask": torch.tensor(PADDING), "causal": True, "need_weights": need_weights}
    wrt = [given.q, given.k, given.v, *called.mechanism.parameters()]
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", half, enabled=enabled):
            output, _ = called(given, **options)
        gradients = torch.autograd.grad(output.float().square().sum(), wrt, allow_unused=True)
        found.append([output.float(), *(gradient for gradient in gradients if gradient is not None)])
    for plain, low in zip(*found, strict=True):
        assert (low - plain).norm() <= 0.05 * plain.norm() + 1e-3, (plain, low)


def test_what_leaves_float16s_range_under_its_autocast():
    """Sums of squares of unscaled scores do in a long row, and a large unscaled score."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (2 * torch.randn(1, HEADS, 512, HEAD_DIM, generator=generator) for _ in range(3))
    nap, softmax = (build(name, Site(EMBED, HEADS)) for name in ("nap", "softmax"))
    large = torch.full((1, HEADS, 5, HEAD_DIM), 160.0)
    with torch.autocast("cpu", torch.float16):
        found, _ = nap(q, k, v)
        _, weights = softmax(large, large, large, need_weights=True)
    wanted, _ = nap(q, k, v)
    assert (found - wanted).norm() <= 0.01 * wanted.norm()
    assert_close(weights, torch.full_like(weights, 0.2), rtol=1e-3, atol=0)


def test_autocast_of_values_in_another_dtype():
    """As rotary positions leave them."""
    mechanism, given = build("dagpam", Site(EMBED, HEADS)), inputs(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        mixed, _ = mechanism(given.q, given.k, given.v.bfloat16())
        alike, _ = mechanism(*(tensor.bfloat16() for tensor in (given.q, given.k, given.v)))
    assert_close(mixed, alike)
    with pytest.raises(UsageError, match="of one dtype"):
        mechanism(given.q, given.k, given.v.bfloat16())


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_contranorm_behind_a_block_under_autocast(similarity):
    mechanism = build("contranorm", Site(EMBED, HEADS), {"contranorm_similarity": similarity})
    x = inputs(dtype=torch.float32).x
    with torch.autocast("cpu", torch.bfloat16):
        got = mechanism.after_block(x, causal=True)
    assert got.dtype == torch.float32
    assert_close(got, mechanism.after_block(x, causal=True), rtol=2e-2, atol=2e-2)


def test_contranorm_that_nobody_calls_behind_the_block_says_so():
    mechanism, given = build("contranorm", Site(EMBED, HEADS)).double(), inputs()
    for _ in range(2):  # as in a model: nothing to say
        mechanism(given.q, given.k, given.v)
        mechanism.after_block(given.x)
    mechanism.eval()(given.q, given.k, given.v)  # looked at by itself
    mechanism.train()(given.q, given.k, given.v)
    with pytest.warns(UserWarning, match=r"'contranorm' is softmax by itself: call after_block\(x\)"):
        mechanism(given.q, given.k, given.v)


def test_neutreno_of_one_layer_says_that_it_is_softmax():
    with pytest.warns(UserWarning, match="'neutreno' in a stack of one layer is softmax"):
        build("neutreno", Site(EMBED, HEADS))
    build("neutreno", Site(EMBED, HEADS, layers=2))


@pytest.mark.parametrize("init", ["negative_identity", "identity"])
def test_dagpam_initialisation(init):
    mechanism = build("dagpam", Site(64, 4), {"query_neg_init": init, "negative_key": "separate"})
    identity = torch.eye(16)
    assert_close(mechanism.key_neg.detach(), identity)
    assert_close(mechanism.query_neg.detach(), identity if init == "identity" else -identity)


def test_one_number_for_both_lambdas_wants_equal_ones():
    for options in ({"lambda_pos": 0.2}, {"combination": "plain"}):
        with pytest.raises(UsageError, match=r"keeps a row's sum at 1: got lambda_pos .*, wanted equal lambdas"):
            build("dagpam", Site(EMBED, HEADS), {"lambdas": "trainable_equal", **options})


def test_a_convex_pair_has_no_negative_weight_and_moves_as_a_learned_lambda_does():
    options = {"lambdas": "trainable_convex", "lambda_pos": -0.5, "lambda_neg": -0.5}
    convex = build("dagpam", Site(EMBED, HEADS), options)
    free = build("dagpam", Site(EMBED, HEADS), {**options, "lambdas": "trainable_equal"})
    given = inputs(dtype=torch.float32)
    for mechanism in (convex, free):
        mechanism(given.q, given.k, given.v)[0].square().sum().backward()
    assert_close(convex.mixture.grad, -free.lambda_pos.grad)
    for mixture in (-9.0, 0.2, 9.0):
        with torch.no_grad():
            convex.mixture.fill_(mixture)
        _, weights = convex(given.q, given.k, given.v, need_weights=True)
        assert weights.min() >= 0 and convex.row_sum().item() == pytest.approx(1.0)
    for wrong in ({"lambda_pos": -0.2}, {"lambda_pos": 0.5, "lambda_neg": 0.5}, {"combination": "plain"}):
        with pytest.raises(UsageError, match=r"its weights above 0: got .*, wanted equal lambdas between -1 and 0"):
            build("dagpam", Site(EMBED, HEADS), {**options, **wrong})


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_scale_of_softmax_moves_as_a_row_sum_of_dagpam(decay):
    """Pulled alike by a loss, both sums go through the same values under Adam with decoupled weight decay."""
    sums = {}
    for name, options in (("softmax_scaled", {}), ("dagpam", {"lambdas": "trainable"})):
        mechanism = build(name, Site(EMBED, HEADS), options)
        lambdas = [mechanism.lambda_pos, mechanism.lambda_neg]
        optimiser = torch.optim.AdamW(lambdas, lr=0.01, weight_decay=decay)
        sums[name] = []
        for _ in range(20):
            optimiser.zero_grad()
            (mechanism.row_sum() - 0.3).square().backward()
            optimiser.step()
            sums[name].append(mechanism.row_sum().item())
    assert sums["softmax_scaled"] == sums["dagpam"] and sums["dagpam"][0] == pytest.approx(0.98, abs=1e-3)


@pytest.mark.parametrize(
    "where, roles",
    [
        ("all", {"encoder", "decoder", "cross"}),
        ("self", {"encoder", "decoder"}),
        *((role, {role}) for role in ("encoder", "decoder", "cross")),
    ],
)
def test_where_dagpam_stands(where, roles):
    for role in ("encoder", "decoder", "cross"):
        built = build("dagpam", Site(EMBED, HEADS, role), {"negative_in": where})
        assert type(built).__name__ == ("DaGPAM" if role in roles else "Softmax")


def test_names_start_with_the_two_of_the_paper():
    assert names()[:2] == ["softmax", "dagpam"] and len(names()) >= 16


def test_nap_gradient_where_all_scores_are_equal():
    """The deviation has no derivative there, but the weights have: that of the centred scores over epsilon."""
    called, given = Called(("nap", {})), inputs(target=3, batch=1)
    equal = torch.zeros_like(given.q, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q: called.mechanism.weights(q, given.k), (equal,), rtol=2e-2)


def test_causal_targets_are_the_last_positions():
    given = inputs(target=5)
    every, last = (parts.visible_sources(q, given.k, None, causal=True) for q in (given.q, given.q[:, :, -2:]))
    assert last.equal(every[:, :, -2:])
    with pytest.raises(ValueError, match="5 targets for 2 sources"):
        parts.visible_sources(given.q, given.k[:, :, :2], None, causal=True)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("name", ["shaped", "neutreno"])
def test_more_targets_than_sources_have_no_values_of_their_own(name, need_weights):
    q, k = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 4, 8)
    with pytest.raises(UsageError, match="got 5 targets for 4 sources"):
        build(name, Site(16, 2, layers=2))(q, k, k, need_weights=need_weights)


def test_a_state_of_another_text_is_refused_and_stays():
    mechanism = build("gfsa", Site(16, 2))
    state = {"gfsa_gathered": torch.randn(1, 2, 3, 8)}
    q, k = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 6, 8)
    with pytest.raises(UsageError, match="a state with 4 rows for 6 sources"):
        mechanism(q, k, k, causal=True, state=state)
    assert state["gfsa_gathered"].shape[2] == 3


def test_contranorm_computes_by_the_backend_that_is_set():
    mechanism = build("contranorm", Site(16, 2))
    mechanism.backend, x = "reference", torch.randn(2, 5, 16, requires_grad=True)
    (grad,) = torch.autograd.grad(mechanism.after_block(x).square().sum(), x, create_graph=True)
    torch.autograd.grad(grad.square().sum(), x)


@pytest.mark.parametrize("wrong", [["lambda_pos"], options_of("cog")])
def test_options_that_are_no_mapping_are_named(wrong):
    with pytest.raises(UsageError, match=r"options of 'dagpam': got .*, wanted a mapping"):
        build("dagpam", Site(16, 2), wrong)


def _mechanism(*, has_facts=True, field=None, named="own"):
    """A class that its author has not finished, or whose option ``field`` declares."""
    options = dataclasses.make_dataclass("Options", [(named, float, field)] if field else [], frozen=True)
    facts = {"facts": mechanism_class("softmax").facts} if has_facts else {}
    return type("Mine", (Mechanism,), {"Options": options, **facts})


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("dagpam", {}, "'dagpam' is registered twice"),
        ("mine", {"has_facts": False}, r"'mine' has no facts: wanted facts = Facts\(\.\.\.\)"),
        ("mine", {"field": dataclasses.field(default=1.0)}, "option 'own' of attention 'mine': wanted option"),
        ("mine", {"field": option(2, "how many"), "named": "layers"}, "option 'layers' .* has a name that is not free"),
        (
            "mine",
            {"field": option(2.0, "how many"), "named": "gfsa_order"},
            "'mine' differs from that of .* 'gfsa'",
        ),
    ],
)
def test_what_cannot_be_registered_is_said_to_its_author(name, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        register(name)(_mechanism(**given))
    assert "mine" not in names()


@pytest.mark.parametrize(("default", "choices"), [(True, None), ("text", None), ("text", ("other",)), (None, None)])
def test_an_option_that_no_command_line_could_take_is_refused(default, choices):
    with pytest.raises(TypeError, match=f"default: got {default!r}, wanted a number, or one of choices"):
        option(default, "help", choices=choices)
