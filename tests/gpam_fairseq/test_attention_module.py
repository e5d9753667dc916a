"""GPAMMultiheadAttention keeps the contract of fairseq's own module: with softmax it gives the same results."""

import copy

import gpam_fairseq.compat  # noqa: F401  (before fairseq)
from gpam_fairseq.attention import GPAMMultiheadAttention

import pytest
import torch
from fairseq import utils
from fairseq.modules import MultiheadAttention
from torch.testing import assert_close

from gpam.attention import Site, build
from gpam.errors import UsageError

WIDTH, HEADS, BATCH, TARGET, SOURCE = 16, 4, 3, 5, 7
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def pair(attention="softmax", role="encoder", options=(), dtype=torch.float64, **settings):
    """A stock module and one of ours with the same projections, both in evaluation."""
    torch.manual_seed(0)
    if role == "cross":
        settings["encoder_decoder_attention"] = True
    elif "kdim" not in settings:
        settings["self_attention"] = True
    stock = MultiheadAttention(WIDTH, HEADS, **settings)
    for parameter in stock.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    mechanism = build(attention, Site(WIDTH, HEADS, role), dict(options))
    own = GPAMMultiheadAttention(copy.deepcopy(stock), mechanism)
    return stock.to(dtype).eval(), own.to(dtype).eval()


def tensor(length, width=WIDTH, seed=1):
    return torch.randn(length, BATCH, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padding(length, left=False):
    """Padding of the second sentence by 2 and of the third by 1."""
    mask = torch.zeros(BATCH, length, dtype=torch.bool)
    mask[1, -2:] = mask[2, -1:] = True
    return mask.flip(1) if left else mask


def future_mask(length, dtype=torch.float64):
    """As ``TransformerDecoder.buffered_future_mask`` makes it."""
    return torch.triu(utils.fill_with_neg_inf(torch.zeros(length, length, dtype=dtype)), 1)


@pytest.mark.parametrize("mask", [None, padding(SOURCE), padding(SOURCE, left=True)], ids=["whole", "right", "left"])
def test_cross_attention_is_stock(mask):
    stock, own = pair(role="cross")
    query, memory = tensor(TARGET), tensor(SOURCE, seed=2)
    wanted, wanted_weights = stock(query, memory, memory, key_padding_mask=mask)
    got, weights = own(query, memory, memory, key_padding_mask=mask)
    assert got.shape == (TARGET, BATCH, WIDTH)
    assert weights.shape == (BATCH, TARGET, SOURCE)
    assert_close(got, wanted, **CLOSE)
    assert_close(weights, wanted_weights, **CLOSE)
    assert_close(own(query, memory, memory, key_padding_mask=mask, need_weights=False)[0], wanted, **CLOSE)
    if mask is not None:
        bytes_mask = mask.to(torch.uint8)
        assert_close(own(query, memory, memory, key_padding_mask=bytes_mask)[0], wanted, **CLOSE)
        assert (own(query, memory, memory)[0] - wanted).abs().max() > 1e-3


@pytest.mark.parametrize("mask", [None, padding(TARGET)], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_stock(mask, causal):
    stock, own = pair()
    x = tensor(TARGET)
    masks = {"key_padding_mask": mask, "attn_mask": future_mask(TARGET) if causal else None}
    wanted, _ = stock(x, x, x, **masks)
    for need_weights in (False, True):
        assert_close(own(x, x, x, need_weights=need_weights, **masks)[0], wanted, **CLOSE)


@pytest.mark.parametrize("role, kdim, vdim", [("cross", 24, 24), ("encoder", 24, 10)], ids=["memory", "separate"])
def test_widths_of_keys_and_values_are_their_own(role, kdim, vdim):
    stock, own = pair(role=role, kdim=kdim, vdim=vdim)
    query, key = tensor(TARGET), tensor(SOURCE, kdim, seed=2)
    value = key if role == "cross" else tensor(SOURCE, vdim, seed=3)
    wanted, wanted_weights = stock(query, key, value, key_padding_mask=padding(SOURCE))
    got, weights = own(query, key, value, key_padding_mask=padding(SOURCE))
    assert_close(got, wanted, **CLOSE)
    assert_close(weights, wanted_weights, **CLOSE)


def test_weights_of_every_head():
    """Stock fairseq gives them only where it does not take PyTorch's path, as with a cached memory."""
    stock, own = pair(role="cross")
    query, memory = tensor(TARGET), tensor(SOURCE, seed=2)
    arguments = {"static_kv": True, "need_head_weights": True, "key_padding_mask": padding(SOURCE)}
    _, wanted = stock(query, memory, memory, incremental_state={}, **arguments)
    _, got = own(query, memory, memory, incremental_state={}, **arguments)
    assert got.shape == (HEADS, BATCH, TARGET, SOURCE)
    assert_close(got.float(), wanted, rtol=1e-6, atol=1e-7)  # fairseq makes its softmax in float32
    _, mean = own(query, memory, memory, key_padding_mask=padding(SOURCE))
    assert_close(got.mean(0), mean, **CLOSE)
    assert own(query, memory, memory, need_weights=False)[1] is None


@pytest.mark.parametrize("attention", ["softmax", "dagpam"])
def test_mask_of_the_decoder_in_every_form(attention):
    """The decoder hands out its buffer, slices of it, and the buffer in another precision; PyTorch also has true for
    hidden."""
    _, own = pair(attention, role="decoder", dtype=torch.float32)
    buffer = future_mask(12, torch.float32)
    x = tensor(TARGET).float()
    wanted, weights = own(x, x, x, attn_mask=future_mask(TARGET, torch.float32))
    assert weights.triu(1).eq(0).all()
    assert_close(own(x, x, x, attn_mask=buffer[:TARGET, :TARGET])[0], wanted)
    assert_close(own(x, x, x, attn_mask=future_mask(TARGET))[0], wanted)
    assert_close(own(x, x, x, attn_mask=future_mask(TARGET).isinf())[0], wanted)
    assert (own(x, x, x)[0] - wanted).abs().max() > 1e-3
    longer = tensor(12).float()
    assert_close(own(longer, longer, longer, attn_mask=buffer)[1].triu(1), torch.zeros(BATCH, 12, 12))


def test_in_inference_mode_and_with_a_dropout_that_is_changed():
    _, own = pair("dagpam", role="decoder")
    x, mask = tensor(TARGET), future_mask(TARGET)
    wanted = own(x, x, x, attn_mask=mask)[0]
    with torch.inference_mode():
        assert_close(own(x, x, x, attn_mask=future_mask(TARGET))[0], wanted)
    own.train()
    for p, same in ((0.5, False), (0.0, True)):
        own.dropout_module.p = p
        assert torch.equal(*(own(x, x, x, attn_mask=mask)[0] for _ in range(2))) == same


OTHER_MASKS = {
    "all visible": torch.zeros(TARGET, TARGET, dtype=torch.float64),
    "a bias": future_mask(TARGET) + 0.5,
    "the past hidden": future_mask(TARGET).T.contiguous(),
    "a view of the past": future_mask(TARGET).T,
    "not the leading square": future_mask(2 * TARGET)[:TARGET, 1 : TARGET + 1],
    "not a square": future_mask(2 * TARGET)[:TARGET, : TARGET - 1],
}


def test_other_masks_are_refused():
    _, own = pair()
    x, seen = tensor(TARGET), future_mask(TARGET)
    own(x, x, x, attn_mask=seen)
    seen[0, 1] = 0.0
    for mask in (*OTHER_MASKS.values(), seen):
        with pytest.raises(NotImplementedError, match="only fairseq's causal mask and key_padding_mask"):
            own(x, x, x, attn_mask=mask)


def test_refuses_what_no_mechanism_has():
    for setting in ("add_bias_kv", "add_zero_attn"):
        stock = MultiheadAttention(WIDTH, HEADS, self_attention=True, **{setting: True})
        with pytest.raises(UsageError, match="add_bias_kv, add_zero_attn and xformers attention are not supported"):
            GPAMMultiheadAttention(stock, build("softmax", Site(WIDTH, HEADS)))
    _, own = pair()
    x = tensor(TARGET)
    with pytest.raises(NotImplementedError, match="before_softmax"):
        own(x, x, x, before_softmax=True)


def test_takes_over_the_mode_of_the_stock_module():
    stock = MultiheadAttention(WIDTH, HEADS, self_attention=True, dropout=0.5).eval()
    own = GPAMMultiheadAttention(stock, build("softmax", Site(WIDTH, HEADS, dropout=0.5)))
    assert not any(module.training for module in own.modules())


@pytest.mark.parametrize("attention", ["softmax", "dagpam"])
def test_step_by_step_equals_all_at_once(attention):
    """Also when the hypotheses change places, and with padding that comes and goes."""
    stock, own = pair(attention, role="decoder", options={"lambda_neg": 0.9} if attention == "dagpam" else {})
    x, mask = tensor(TARGET), torch.zeros(BATCH, TARGET, dtype=torch.bool)
    mask[2, 1] = mask[1, 3] = True
    whole, _ = own(x, x, x, key_padding_mask=mask, attn_mask=future_mask(TARGET))
    if attention == "softmax":
        assert_close(whole, stock(x, x, x, key_padding_mask=mask, attn_mask=future_mask(TARGET))[0], **CLOSE)
    state, row = {}, torch.arange(BATCH)
    for step in range(TARGET):
        if step == 2:
            order = torch.tensor([2, 0, 0])
            own.reorder_incremental_state(state, order)
            row = row[order]
        now, step_mask = x[step : step + 1, row], mask[row, step : step + 1]
        part, _ = own(now, now, now, key_padding_mask=step_mask if step_mask.any() else None, incremental_state=state)
        assert_close(part[0], whole[step, row], **CLOSE)


@pytest.mark.parametrize("attention", ["softmax", "dagpam"])
def test_keys_of_the_memory_are_made_once(attention):
    """Cross attention in decoding: the cache serves later steps, and follows when a sentence is finished."""
    _, own = pair(attention, role="cross")
    query, memory, mask = tensor(TARGET), tensor(SOURCE, seed=2), padding(SOURCE)
    whole, _ = own(query, memory, memory, key_padding_mask=mask)
    made, state = [], {}
    own.k_proj.register_forward_hook(lambda *_: made.append(1))
    row = torch.arange(BATCH)
    for step in range(TARGET):
        if step == 3:
            row = torch.tensor([1, 2])
            own.reorder_incremental_state(state, row)
        part, _ = own(
            query[step : step + 1, row],
            memory[:, row],
            memory[:, row],
            key_padding_mask=mask[row],
            incremental_state=state,
            static_kv=True,
        )
        assert_close(part[0], whole[step, row], **CLOSE)
    assert len(made) == 1


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 0.1), (torch.float16, 0.01), (torch.float32, 1e-5)])
@pytest.mark.parametrize("attention", ["softmax", "dagpam"])
def test_other_precisions(dtype, tolerance, attention):
    """Forward and backward on the CPU, close to float64."""
    _, exact = pair(attention, role="decoder")
    _, own = pair(attention, role="decoder", dtype=dtype)
    x, mask = tensor(TARGET), padding(TARGET)
    wanted, _ = exact(x, x, x, key_padding_mask=mask, attn_mask=future_mask(TARGET))
    low, future = x.to(dtype), future_mask(TARGET, dtype)
    for need_weights in (False, True):
        got, _ = own(low, low, low, key_padding_mask=mask, attn_mask=future, need_weights=need_weights)
        assert got.dtype == dtype
        assert_close(got.double(), wanted, rtol=0, atol=tolerance * wanted.abs().max().item())
        own.zero_grad()
        got.sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in own.parameters())


def test_a_mechanism_that_reads_the_input_is_given_the_input():
    own = GPAMMultiheadAttention(MultiheadAttention(16, 4, self_attention=True), build("gated", Site(16, 4)))
    seen, x = [], torch.randn(5, 3, 16)
    own.mechanism.register_forward_pre_hook(lambda _, given, named: seen.append(named), with_kwargs=True)
    own(x, x, x)
    assert torch.equal(seen[0]["query_input"], x.transpose(0, 1))
