"""``gpam.nn.MultiheadAttention`` against torch's own module, and the ways in which a model uses it."""

import inspect
import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from gpam.attention import names
from gpam.attention.backends.compiled import library
from gpam.attention.registry import ARGUMENTS
from gpam.errors import UsageError
from gpam.nn import MultiheadAttention, convert

EXACT = {"rtol": 1e-10, "atol": 1e-12}
SELF_ONLY = {"contranorm": "behind the block", "neutreno": "from layer to layer", "cog": "first and the last layer"}
ALONE = [name for name in names() if name not in SELF_ONLY]


def pair(**options):
    """torch's module and ours with the same random weights, in float64."""
    torch.manual_seed(0)
    ours = MultiheadAttention(12, 3, "softmax", dtype=torch.float64, **options)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.4)
    stock = nn.MultiheadAttention(12, 3, dtype=torch.float64, **options)
    stock.load_state_dict(ours.state_dict())
    return stock, ours


def texts(target=5, source=7, batch=2, batch_first=False, widths=(12, 12, 12)):
    generator = torch.Generator().manual_seed(1)
    shapes = [(length, batch, width) for length, width in zip((target, source, source), widths, strict=True)]
    drawn = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [(x.transpose(0, 1).contiguous() if batch_first else x).requires_grad_() for x in drawn]


def assert_same(stock, ours, given, wanted_from=None, **call):
    """Outputs, weights and the gradients of inputs and parameters are equal."""
    want, want_weights = stock(*given, **(wanted_from or call))
    got, got_weights = ours(*given, **call)
    assert_close(got, want, **EXACT)
    assert (got_weights is None) == (want_weights is None)
    if got_weights is not None:
        assert_close(got_weights, want_weights, **EXACT)
    along = torch.randn(want.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wrt = list(dict.fromkeys(given))
    for module, output in ((stock, want), (ours, got)):
        module.zero_grad()
        module.gradients = torch.autograd.grad(output, [*wrt, *module.parameters()], along)
    for mine, theirs in zip(ours.gradients, stock.gradients, strict=True):
        assert_close(mine, theirs, **EXACT)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masks", ["none", "padding", "float padding", "boolean", "additive", "a head", "both"])
def test_softmax_is_torch(need_weights, masks):
    batch_first = need_weights == (masks in ("none", "float padding", "additive"))
    stock, ours = pair(batch_first=batch_first)
    generator = torch.Generator().manual_seed(3)
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    window = torch.ones(5, 7, dtype=torch.bool).triu(4)
    call = {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "float padding": {"key_padding_mask": torch.zeros(2, 7).double().masked_fill(padding, float("-inf"))},
        "boolean": {"attn_mask": window},
        "additive": {"attn_mask": torch.randn(5, 7, generator=generator, dtype=torch.float64)},
        "a head": {"attn_mask": torch.rand(6, 5, 7, generator=generator) < 0.3},
        "both": {"attn_mask": window, "key_padding_mask": padding},
    }[masks]
    assert_same(stock, ours, texts(batch_first=batch_first), need_weights=need_weights, **call)


def test_a_padding_mask_that_adds_is_added():
    stock, ours = pair()
    bias = torch.randn(2, 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    for attn_mask in (None, torch.ones(5, 7).triu(3).bool(), torch.randn(5, 7).double()):
        call = {"key_padding_mask": bias, "attn_mask": attn_mask}
        as_floats = None
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            as_floats = call | {"attn_mask": torch.zeros(5, 7).double().masked_fill(attn_mask, float("-inf"))}
        assert_same(stock, ours, texts(), as_floats, **call)


@pytest.mark.parametrize("need_weights", [False, True])
def test_self_attention_causal_and_by_head(need_weights):
    stock, ours = pair()
    x = texts(5)[0]
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    call = {"need_weights": need_weights, "average_attn_weights": False}
    with_mask = call | {"attn_mask": mask, "is_causal": True}
    assert_same(stock, ours, (x, x, x), with_mask, **call, is_causal=True)
    assert_same(stock, ours, (x, x, x), **with_mask)
    assert_same(stock, ours, (x, x, x), attn_mask=mask, need_weights=need_weights)
    not_square = torch.ones(5, 7, dtype=torch.bool).triu(1)
    assert_same(stock, ours, texts(), **call, attn_mask=not_square, is_causal=True)


@pytest.mark.parametrize("bias", [False, True])
def test_other_widths_and_no_bias(bias):
    stock, ours = pair(kdim=8, vdim=6, bias=bias)
    assert_same(stock, ours, texts(widths=(12, 8, 6)))
    stock, ours = pair(bias=bias)
    assert_same(stock, ours, texts())


def test_unbatched_input():
    stock, ours = pair(batch_first=True)
    query, key, value = (x[:, 0].detach().requires_grad_() for x in texts())
    padding = torch.tensor([False] * 6 + [True])
    assert_same(stock, ours, (query, key, value), key_padding_mask=padding)
    assert_same(stock, ours, (query, key, value), attn_mask=torch.ones(3, 5, 7).triu(5).bool())


def test_a_row_that_sees_nothing_is_the_output_bias_and_has_gradients():
    _, ours = pair()
    query, key, value = texts()
    padding = torch.tensor([[True] * 7, [False] * 7])
    for need_weights in (False, True):
        output, _ = ours(query, key, value, key_padding_mask=padding, need_weights=need_weights)
        assert_close(output[:, 0], ours.out_proj.bias.expand(5, 12), **EXACT)
        gradients = torch.autograd.grad(output.sum(), [query, key, value, *ours.parameters()])
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_parameters_are_drawn_again_as_torch_draws_them():
    for widths in ({}, {"kdim": 6, "vdim": 4}):
        ours, theirs = MultiheadAttention(8, 2, **widths), nn.MultiheadAttention(8, 2, **widths)
        for module in (ours, theirs):
            torch.manual_seed(3)
            module._reset_parameters()
        drawn = theirs.state_dict()
        del drawn["out_proj.weight"]  # which torch draws once
        assert all(torch.equal(ours.state_dict()[name], value) for name, value in drawn.items())


def test_state_dicts_have_torchs_names():
    for options in ({}, {"kdim": 8}, {"bias": False}):
        stock, ours = pair(**options)
        assert list(stock.state_dict()) == list(ours.state_dict())
        learned = MultiheadAttention(12, 3, "dagpam", lambdas="trainable", **options)
        more = [name for name in learned.state_dict() if name not in stock.state_dict()]
        assert more == ["mechanism.query_neg", "mechanism.lambda_pos", "mechanism.lambda_neg"]
        missing = learned.load_state_dict(stock.state_dict(), strict=False)
        assert missing.missing_keys == more and not missing.unexpected_keys


@pytest.mark.parametrize("name", ALONE)
def test_decoding_with_a_cache_gives_what_all_at_once_gives(name):
    torch.manual_seed(0)
    layer = MultiheadAttention(8, 2, name, batch_first=True, role="decoder", dtype=torch.float64).eval()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    with torch.no_grad():
        want, _ = layer(x, x, x, is_causal=True, need_weights=False)
        for steps in ((1,) * 6, (3, 1, 2)):
            cache = {}
            parts = []
            for part in x.split(steps, dim=1):
                parts.append(layer(part, part, part, is_causal=True, need_weights=False, cache=cache)[0])
            assert_close(torch.cat(parts, 1), want, **EXACT)


@torch.no_grad()
def test_the_cache_of_dagpam_is_that_of_softmax_byte_for_byte():
    torch.manual_seed(0)
    softmax = MultiheadAttention(8, 2, "softmax", batch_first=True)
    dagpam = MultiheadAttention(8, 2, "dagpam", batch_first=True)
    dagpam.load_state_dict(softmax.state_dict(), strict=False)
    caches = {}
    for layer in (softmax, dagpam):
        cache = caches[layer] = {}
        for token in torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(5)).split(1, dim=1):
            layer(token, token, token, is_causal=True, need_weights=False, cache=cache)
    assert list(caches[softmax]) == list(caches[dagpam]) == ["key", "value"]
    for name in ("key", "value"):
        assert caches[softmax][name].numpy().tobytes() == caches[dagpam][name].numpy().tobytes()


def test_autocast_and_checkpointing():
    torch.manual_seed(0)
    layer = MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8, requires_grad=True)
    want = layer(x, x, x, need_weights=False)[0]
    for need_weights in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            output, _ = layer(x, x, x, need_weights=need_weights)
        assert_close(output.float(), want, rtol=0.05, atol=0.05)
        output.float().sum().backward()
    again = checkpoint(lambda given: layer(given, given, given, need_weights=False)[0], x, use_reentrant=False)
    assert_close(again, want)
    along = torch.randn_like(want)
    for got, wanted in zip(
        torch.autograd.grad(again, list(layer.parameters()), along),
        torch.autograd.grad(want, list(layer.parameters()), along),
        strict=True,
    ):
        assert_close(got, wanted)


@pytest.mark.parametrize("name", ALONE)
def test_dropout_is_drawn_in_training_alone(name):
    layer, x = MultiheadAttention(8, 2, name, dropout=0.5, batch_first=True), torch.randn(2, 5, 8)
    one, other = (layer(x, x, x, is_causal=True, need_weights=False)[0] for _ in range(2))
    assert not torch.equal(one, other)
    one.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
    layer.eval()
    assert torch.equal(*(layer(x, x, x, is_causal=True, need_weights=False)[0] for _ in range(2)))


@pytest.mark.parametrize("name", ALONE)
def test_shapes_without_data(name):
    """torch's meta device, on which models too large for a machine are laid out."""
    layer = MultiheadAttention(8, 2, name, batch_first=True, device="meta")
    x = torch.empty(3, 5, 8, device="meta", requires_grad=True)
    padding = torch.empty(3, 5, device="meta")  # as torch's layers hand it on
    for need_weights in (False, True):
        output, weights = layer(x, x, x, key_padding_mask=padding, need_weights=need_weights)
        output.sum().backward()
        assert output.shape == x.grad.shape == x.shape and (weights is not None) == need_weights
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_compiled_in_one_graph():
    """Up to torch's own code generator, which takes half a minute."""
    torch.manual_seed(0)
    layer = MultiheadAttention(8, 2, batch_first=True, lambdas="trainable")
    x = torch.randn(2, 5, 8, requires_grad=True)
    padding = torch.tensor([[False] * 5, [False] * 4 + [True]])
    call = {"need_weights": False, "is_causal": True, "key_padding_mask": padding}
    want = layer(x, x, x, **call)[0]
    torch._dynamo.reset()
    got = torch.compile(layer, fullgraph=True, backend="aot_eager_decomp_partition")(x, x, x, **call)[0]
    assert_close(got, want)
    wrt = [x, *layer.parameters()]
    along = torch.randn_like(want)
    for mine, eager in zip(torch.autograd.grad(got, wrt, along), torch.autograd.grad(want, wrt, along), strict=True):
        assert_close(mine, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("mechanism", ["softmax", "dagpam", "cog"])
def test_exported_and_traced_it_takes_other_sizes(mechanism):
    """Fewer tokens than heads as well."""
    torch.manual_seed(0)
    options = {"cog_softmax_layers": "none"} if mechanism == "cog" else {}
    layer = MultiheadAttention(16, 8, mechanism, batch_first=True, **options).eval()
    x = torch.randn(2, 5, 16)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    exported = torch.export.export(layer, (x,) * 3, dynamic_shapes=dict.fromkeys(("query", "key", "value"), sizes))
    traced = torch.jit.trace(layer, (x,) * 3, check_trace=False)
    for other in (torch.randn(3, 9, 16), torch.randn(4, 3, 16)):
        for made in (exported.module(), traced):
            assert_close(made(other, other, other)[0], layer(other, other, other)[0])


@pytest.mark.parametrize("mechanism", ["nap", "non", "coda"])
def test_exported_it_takes_padding_of_floats_where_no_bias_can_be_added(mechanism):
    torch.manual_seed(0)
    layer = MultiheadAttention(8, 2, mechanism, batch_first=True).eval()
    x, adding = torch.randn(2, 5, 8), torch.full((2, 5), 0.5)
    padding = torch.tensor([[0.0] * 5, [0.0] * 4 + [float("-inf")]])
    exported = torch.export.export(layer, (x,) * 3, {"key_padding_mask": padding}).module()
    assert_close(exported(x, x, x, key_padding_mask=padding)[0], layer(x, x, x, key_padding_mask=padding)[0])
    with pytest.raises(RuntimeError, match="wanted one that only hides"):
        exported(x, x, x, key_padding_mask=adding)


def _one_process(rank, folder):
    meeting = {"init_method": f"file://{folder / 'rendezvous'}", "timeout": timedelta(minutes=5)}
    dist.init_process_group("gloo", rank=rank, world_size=2, **meeting)
    torch.manual_seed(0)
    layer = nn.parallel.DistributedDataParallel(MultiheadAttention(8, 2, batch_first=True, lambdas="trainable"))
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(9))[rank : rank + 1]
    layer(x, x, x, need_weights=False)[0].sum().backward()
    torch.save([parameter.grad for parameter in layer.parameters()], folder / f"{rank}.pt")
    # No way to end it is safe: the group's destructor holds Python's lock while it waits for a thread of gloo's, which
    # may want that lock to let go of the backward pass (https://github.com/pytorch/pytorch/issues/56297).
    os._exit(0)


def test_distributed_data_parallel_averages_every_gradient(tmp_path):
    mp.spawn(_one_process, (tmp_path,), nprocs=2)
    torch.manual_seed(0)
    layer = MultiheadAttention(8, 2, batch_first=True, lambdas="trainable")
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(9))
    (layer(x, x, x, need_weights=False)[0].sum() / 2).backward()
    for rank in (0, 1):
        for parameter, gradient in zip(layer.parameters(), torch.load(tmp_path / f"{rank}.pt"), strict=True):
            assert_close(gradient, parameter.grad)


def test_dropout_that_is_changed_is_changed():
    torch.manual_seed(0)
    layer, x = MultiheadAttention(8, 2, dropout=0.5, batch_first=True), torch.randn(2, 5, 8)
    assert not torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    layer.dropout = 0.0
    assert torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])


@pytest.mark.parametrize("batch_first", [False, True])
def test_one_input_is_mapped_by_one_product(batch_first, monkeypatch):
    layer, x, maps = MultiheadAttention(8, 2, "softmax", batch_first=batch_first), torch.randn(4, 5, 8), []
    linear = nn.functional.linear
    monkeypatch.setattr(nn.functional, "linear", lambda *given: maps.append(given[1].shape) or linear(*given))
    layer(x, x, x)
    assert maps[0] == (24, 8) and len(maps) <= 2  # the other is the output's


def test_no_option_has_the_name_of_an_argument():
    taken = {*inspect.signature(MultiheadAttention.__init__).parameters, *inspect.signature(convert).parameters}
    configurations = {"name", "label", "attention", "control"}  # of the suite's configs/model
    assert (taken - {"self", "options"}) | configurations == ARGUMENTS


def test_a_padding_bias_that_is_learned_moves_from_zero():
    x, bias = texts(batch_first=True)[1], torch.zeros(2, 7, dtype=torch.float64, requires_grad=True)
    found = []
    for layer in pair(batch_first=True):
        out = layer(x, x, x, key_padding_mask=bias, need_weights=False)[0]
        found.append(*torch.autograd.grad(out.square().sum(), bias))
    assert_close(*found, **EXACT)
    assert found[0].abs().max() > 1e-3


def test_one_number_for_both_lambdas_stays_one():
    """Through torch's meta device as well."""
    options = {"lambdas": "trainable_equal", "lambda_pos": 0.5, "lambda_neg": 0.5}
    here = MultiheadAttention(8, 2, **options)
    later = MultiheadAttention(8, 2, device="meta", **options).to_empty(device="cpu")
    later.load_state_dict(here.state_dict())
    x = torch.randn(2, 5, 8)
    for layer in (here, later):
        optimiser = torch.optim.SGD(layer.parameters(), 0.1)
        for _ in range(3):
            layer(x, x, x)[0].square().sum().backward()
            optimiser.step()
        assert layer.mechanism.lambda_pos == -layer.mechanism.weight_neg != 0.5
        assert_close(layer.mechanism.row_sum(), torch.tensor(1.0))


@pytest.mark.parametrize("name", [name for name in names() if name not in SELF_ONLY])
def test_projections_begin_as_torchs_of_the_same_seed(name):
    torch.manual_seed(3)
    ours = MultiheadAttention(16, 4, name)
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(16, 4)
    assert all(torch.equal(ours.state_dict()[key], tensor) for key, tensor in theirs.state_dict().items())


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_mechanism_that_reads_the_input_is_given_the_input(batch_first):
    layer, seen, x = MultiheadAttention(8, 2, "gated", batch_first=batch_first), [], torch.randn(3, 5, 8)
    layer.mechanism.register_forward_pre_hook(lambda _, given, named: seen.append(named), with_kwargs=True)
    layer(x, x, x)
    assert torch.equal(seen[0]["query_input"], x if batch_first else x.transpose(0, 1))


def test_a_call_that_is_refused_leaves_the_cache_as_it_was():
    layer, x, cache = MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(1, 4, 8), {}
    layer(x[:, :3], x[:, :3], x[:, :3], is_causal=True, cache=cache)
    step, wrong = x[:, 3:], torch.zeros(1, 9, dtype=torch.bool)
    with pytest.raises(UsageError, match="key_padding_mask"):
        layer(step, step, step, key_padding_mask=wrong, is_causal=True, cache=cache)
    got = layer(step, step, step, is_causal=True, cache=cache)[0]
    assert_close(got, layer(x, x, x, is_causal=True)[0][:, 3:])


def test_views_of_one_place_are_one_input():
    """A slice that is written thrice, as in decoding; and what torch's older checkpointing makes of its inputs."""
    layer, x = MultiheadAttention(8, 2, "gfsa", batch_first=True), torch.randn(2, 5, 8, requires_grad=True)
    sliced = layer(x[:, :2], x[:, :2], x[:, :2], is_causal=True)[0]
    assert_close(sliced, layer(x, x, x, is_causal=True)[0][:, :2])
    kept = checkpoint(lambda given: layer(given, given.view_as(given), given)[0], x, use_reentrant=True)
    assert_close(kept, layer(x, x, x)[0])


def test_a_large_negative_bias_in_half_precision_is_no_nan():
    torch.manual_seed(0)
    layer, x = MultiheadAttention(8, 2, batch_first=True).half().eval(), torch.randn(1, 5, 8).half()
    bias = torch.zeros(5, 5)
    bias[1, 3:], bias[2] = -1e9, -1e9  # float16 would call it -inf
    output, weights = layer(x, x, x, attn_mask=bias)
    alone = layer(x, x, x, attn_mask=bias, need_weights=False)[0]
    assert output.isfinite().all() and alone.isfinite().all() and not weights[0, 1, 3:].any()
    assert_close(output[:, [0, 1, 3, 4]], alone[:, [0, 1, 3, 4]], rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("device", "dtype"), [("meta", torch.float32), ("cpu", torch.bfloat16), ("cpu", torch.float64)]
)
def test_other_defaults_are_not_the_librarys(device, dtype):
    """Nor of the call that loads it."""
    x = torch.randn(2, 5, 8)
    layer = MultiheadAttention(8, 2, batch_first=True, lambda_pos=0.3)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    want = layer(x, x, x, need_weights=False, key_padding_mask=padding)[0]
    built = library.load()
    library.load.cache_clear()
    torch.set_default_device(device)
    torch.set_default_dtype(dtype)
    try:
        got = layer(x, x, x, need_weights=False, key_padding_mask=padding)[0]
        assert (library.load() is None) == (built is None)
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert_close(got, want)


@pytest.mark.parametrize("name", SELF_ONLY)
def test_what_a_layer_by_itself_cannot_give_is_said(name):
    with pytest.raises(UsageError, match=SELF_ONLY[name]):
        MultiheadAttention(8, 2, name)
    if name == "neutreno":
        assert type(MultiheadAttention(8, 2, name, role="cross").mechanism).__name__ == "Softmax"


def test_mistakes_are_named():
    with pytest.raises(UsageError, match="did you mean 'dagpam'"):
        MultiheadAttention(8, 2, "dagpan")
    with pytest.raises(UsageError, match="did you mean 'lambda_neg'"):
        MultiheadAttention(8, 2, lambda_ne=0.1)
    with pytest.raises(UsageError, match="wanted a whole number, for instance 3"):
        MultiheadAttention(8, 2, "gfsa", gfsa_order=10**400)
    with pytest.raises(UsageError, match="a tensor that requires a gradient and would lose it, wanted a number"):
        MultiheadAttention(8, 2, lambda_pos=nn.Parameter(torch.tensor(0.3)))
    for heads in (3, 0, -2, "2"):
        with pytest.raises(UsageError, match=f"{heads!r} attention heads for a width of 8"):
            MultiheadAttention(8, heads)
    for dropout in (1.5, -0.1, "much"):
        with pytest.raises(UsageError, match=f"attention dropout: got {dropout!r}, wanted a number from 0 to below 1"):
            MultiheadAttention(8, 2, dropout=dropout)
    layer, x = MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    for wrong in (torch.randn(2, 5, 4), torch.randn(1, 2, 5, 8), x.double()):
        with pytest.raises(UsageError, match=r"got \[.* wanted two dimensions \(unbatched\) or three, widths 8, 8, 8"):
            layer(wrong, wrong, wrong)
    with pytest.raises(UsageError, match=r"batch \* heads = 4, target, source\], got shape \[3, 5, 5\]"):
        layer(x, x, x, attn_mask=torch.zeros(3, 5, 5))
    with pytest.raises(UsageError, match=r"got shape \[4, 5\]"):
        layer(x, x, x, attn_mask=torch.zeros(4, 5))
    added = torch.tensor([[0, 0, 0.5, 0, 0]] * 2)
    for padding in (None, added):
        for mask, complaint in ((torch.ones(5, 5).long(), "of booleans"), (torch.ones(3, 3).bool(), "broadcastable")):
            with pytest.raises(UsageError, match=f"attn_mask must be {complaint}"):
                layer(x, x, x, attn_mask=mask, key_padding_mask=padding)
    with pytest.raises(UsageError, match=r"key_padding_mask must be \[batch, source\]"):
        layer(x, x, x, need_weights=False, key_padding_mask=torch.zeros(2, 4, dtype=torch.bool))
    across = MultiheadAttention(8, 2, batch_first=True, role="cross")
    for memory in (torch.randn(1, 4, 8), torch.randn(3, 4, 8)):
        for need_weights in (False, True):
            with pytest.raises(UsageError, match="one batch for all"):
                across(x, memory, memory, need_weights=need_weights)
    with pytest.raises(UsageError, match="a value for each key"):
        across(x, torch.randn(2, 4, 8), torch.randn(2, 3, 8))
    pairs = MultiheadAttention(8, 4, "differential", batch_first=True)
    for need_weights in (False, True):
        with pytest.raises(UsageError, match="takes heads in pairs: got an attn_mask for each head"):
            pairs(x, x, x, attn_mask=torch.zeros(8, 5, 5), need_weights=need_weights)
    gfsa = MultiheadAttention(8, 2, "gfsa", batch_first=True)
    with pytest.raises(UsageError, match="attention 'gfsa' stands in self attention only"):
        gfsa(x, torch.randn(2, 3, 8), torch.randn(2, 3, 8))


def test_a_cache_of_other_sentences_is_refused():
    layer, cache = MultiheadAttention(8, 2, batch_first=True).eval(), {}
    three, two = torch.randn(3, 4, 8), torch.randn(2, 1, 8)
    layer(three, three, three, is_causal=True, cache=cache)
    with pytest.raises(UsageError, match=r"cache: got one of batch and heads \[3, 2\] for \[2, 2\]"):
        layer(two, two, two, is_causal=True, cache=cache)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("need_weights", [True, False])
def test_a_mask_of_narrower_floats_hides_as_one_of_the_values(dtype, need_weights):
    layer, x = MultiheadAttention(8, 2, "dagpam", batch_first=True).eval(), torch.randn(2, 4, 8)
    mask = torch.full((4, 4), float("-inf")).triu(1)
    wanted = layer(x, x, x, attn_mask=mask, need_weights=need_weights)[0]
    assert_close(layer(x, x, x, attn_mask=mask.to(dtype), need_weights=need_weights)[0], wanted)
