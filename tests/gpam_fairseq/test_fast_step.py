"""The fast step against fairseq's own: the same numbers in float64 and in training, and dropout that is dropout."""

import contextlib
import math
import shutil
import subprocess
import sys
from types import SimpleNamespace

from gpam_fairseq.trainer import adam, fast, products, switch
from gpam_fairseq.trainer import cross_entropy as by_chunks
from gpam_fairseq.trainer import dropout as fast_dropout
from gpam_fairseq.trainer.adam import fused_step
from gpam_fairseq.trainer.dropout import dropout
from gpam_fairseq.trainer.fast import fast_step, output_weight

import pytest
import torch
import toy
from fairseq import utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from fairseq.optim.adam import Adam
from fairseq.trainer import Trainer

from gpam.attention.backends import calibration
from gpam.attention.backends.compiled import library

LM = ["--task", "language_modeling", "--arch", "gpam_lm", *toy.sizes("decoder")]

# ------------------------------------------------------------------------------------------------------------- dropout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "attention.so"
    library.build(path)
    return path


@pytest.fixture(params=["compiled", "drawn"])
def form(request, built, monkeypatch):
    """Dropout by the compiled library, and where that is not there."""
    monkeypatch.setattr(library, "path", lambda: built)
    library.load.cache_clear()
    there = request.param == "compiled"
    if there and library.load() is None:
        pytest.skip("no C compiler")
    calibration.use(calibration.Choices(built.name if there else None, {}))
    monkeypatch.setattr(fast_dropout._Drawn if there else fast_dropout._Compiled, "forward", None)  # is not called
    yield
    library.load.cache_clear()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_has_its_rate_and_scale_and_each_element_falls_by_itself(p, form):
    torch.manual_seed(1)
    elements, draws = 1 << 12, 256
    kept = torch.stack([dropout(torch.ones(elements), p) for _ in range(draws)])
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)], rel=1e-4)
    kept = kept.ne(0).double()
    deviation = math.sqrt(p * (1 - p))
    assert abs(float(kept.mean()) - (1 - p)) < 5 * deviation / math.sqrt(kept.numel())
    centred = (kept - (1 - p)) / deviation
    for distance in (1, 2, 3, 4, 5, 8, 16, 64, 624):  # of a 64-bit draw, the next, a vector, the generator's state
        together = centred[:, distance:] * centred[:, :-distance]
        assert abs(float(together.mean())) < 5 / math.sqrt(together.numel()), distance
    between_calls = centred[1:] * centred[:-1]
    assert abs(float(between_calls.mean())) < 5 / math.sqrt(between_calls.numel())


def test_dropout_in_float64_has_its_second_derivative():
    def seeded(x):
        torch.manual_seed(5)
        return dropout(x, 0.3) ** 3

    torch.autograd.gradgradcheck(seeded, torch.randn(33, 3, dtype=torch.float64, requires_grad=True))


def test_dropout_in_float32_drops_the_same_in_every_pass_and_follows_the_seed(form):
    x = torch.randn(3, 33, 7, requires_grad=True)
    torch.manual_seed(5)
    out = dropout(x.transpose(0, 1), 0.3)
    factors = out.detach() / x.detach().transpose(0, 1)
    (first,) = torch.autograd.grad((out**3).sum(), x, create_graph=True)
    wanted = 3 * out.detach() ** 2 * factors
    assert torch.allclose(first.transpose(0, 1), wanted, rtol=1e-5)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second.transpose(0, 1), 6 * out.detach() * factors**2, rtol=1e-5)
    torch.manual_seed(5)
    assert torch.equal(dropout(x.transpose(0, 1), 0.3), out)
    assert not torch.equal(dropout(x.transpose(0, 1), 0.3), out)


def test_every_dropout_of_a_model_is_the_fast_one_and_evaluation_drops_nothing():
    model = toy.build(
        "--task", "language_modeling", "--arch", "gpam_lm", "--attention", "gated", "--dropout", "0.5",
        "--attention-dropout", "0.5", "--activation-dropout", "0.5", *toy.sizes("decoder"),
    )  # fmt: skip
    tokens = torch.randint(4, 16, (3, 9))
    with fast_step(), torch.no_grad():
        torch.manual_seed(1)
        before = torch.get_rng_state()
        assert not torch.equal(model.train()(tokens)[0], model(tokens)[0])
        assert not torch.equal(torch.get_rng_state(), before)
        after = torch.get_rng_state()
        assert torch.equal(model.eval()(tokens)[0], model(tokens)[0])
        assert torch.equal(torch.get_rng_state(), after)
    with fast_step(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "dropout", None)  # PyTorch's own is called nowhere
        model.train()(tokens)


def test_dropout_of_attention_weights_is_the_fast_one():
    """Of a mechanism that computes its weights; those of a sum of softmaxes are dropped by its backend."""
    model = toy.build(*LM, "--attention", "sigmoid", "--dropout", "0", "--attention-dropout", "0.5")
    tokens = torch.randint(4, 16, (3, 9))
    with fast_step(), torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "dropout", None)
        assert not torch.equal(model.train()(tokens)[0], model(tokens)[0])
        assert torch.equal(model.eval()(tokens)[0], model(tokens)[0])


def test_dropout_that_generation_retains_is_drawn():
    model, tokens = toy.build(*LM, "--dropout", "0.5").eval(), torch.randint(4, 16, (3, 9))
    model.make_generation_fast_(retain_dropout=True)
    with fast_step(), torch.no_grad():
        assert not torch.equal(model(tokens)[0], model(tokens)[0])


# ------------------------------------------------------------------------------------------------------- cross entropy


def losses(arch, criterion, sentence_avg, extra, padded, fast, wrapped=lambda model: model):
    """Loss, sample size, log and gradients in float64 of one batch."""
    words = toy.dictionary(37)
    stacks = ("decoder",) if arch == "gpam_lm" else ("encoder", "decoder")
    task = "language_modeling" if arch == "gpam_lm" else "translation"
    model = toy.build("--task", task, "--arch", arch, *toy.sizes(*stacks), *extra, source=words).double().eval()
    target = toy.padded_batch(words, [9, 5, 7] if padded else [9, 9, 9], seed=1)
    source = {"src_tokens": target.roll(1, 1), "src_lengths": torch.tensor([9] * 3)}
    if arch != "gpam_lm":
        source["prev_output_tokens"] = target.roll(1, 1)
    sample = {"net_input": source, "target": target, "ntokens": int(target.ne(words.pad()).sum())}
    made = SimpleNamespace(target_dictionary=words)
    own = criterion(made, sentence_avg, *([0.1] if criterion is LabelSmoothedCrossEntropyCriterion else []))
    with pytest.MonkeyPatch.context() as patch, fast_step() if fast else contextlib.nullcontext():
        patch.setattr(by_chunks, "CHUNK", 37 * 5)  # several chunks, and one that is not full
        patch.setattr(utils, "log_softmax", lambda x, dim, **_: torch.log_softmax(x, dim))  # fairseq's is in float32
        loss, size, log = own(wrapped(model), sample)
        loss.backward()
    return loss.detach(), size, log, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("criterion", [CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion])
@pytest.mark.parametrize(
    ("arch", "extra"),
    [
        ("gpam_lm", []),
        ("gpam_lm", ["--share-decoder-input-output-embed"]),
        ("gpam_nmt_base", ["--share-all-embeddings"]),
    ],
)
@pytest.mark.parametrize(("sentence_avg", "padded"), [(False, True), (True, False)])
def test_cross_entropy_by_chunks_is_fairseqs(criterion, arch, extra, sentence_avg, padded):
    wanted = losses(arch, criterion, sentence_avg, extra, padded, fast=False)
    found = losses(arch, criterion, sentence_avg, extra, padded, fast=True)
    assert float(found[0]) == pytest.approx(float(wanted[0]), rel=1e-12)
    assert found[1] == wanted[1]
    assert {k: float(v) for k, v in found[2].items()} == pytest.approx({k: float(v) for k, v in wanted[2].items()})
    assert found[3].keys() == wanted[3].keys()
    for name, gradient in wanted[3].items():
        assert torch.allclose(found[3][name], gradient, rtol=1e-10, atol=1e-12), name


@pytest.mark.parametrize("left_out", [{"ignore_prefix_size": 2}, {"report_accuracy": True}])
def test_a_criterion_that_asks_for_more_is_left_to_fairseq(left_out, monkeypatch):
    def criterion(task, sentence_avg):
        return LabelSmoothedCrossEntropyCriterion(task, sentence_avg, 0.1, **left_out)

    given = ("gpam_lm", criterion, False, [], True)
    monkeypatch.setattr(fast, "cross_entropy", None)
    assert losses(*given, fast=True)[2] == losses(*given, fast=False)[2]


@pytest.mark.parametrize("looks_for_unused", [False, True])
def test_on_many_devices_it_is_by_chunks_unless_they_look_for_unused_parameters(looks_for_unused, monkeypatch):
    def wrapped(model):
        outer = ModuleProxyWrapper(LegacyDistributedDataParallel(model, None))
        outer.module.find_unused_parameters = looks_for_unused  # as torch's wrapper has it
        return outer

    calls = []
    monkeypatch.setattr(fast, "cross_entropy", lambda *given: calls.append(1) or by_chunks.cross_entropy(*given))
    given = ("gpam_lm", CrossEntropyCriterion, False, [], True)
    wanted, found = losses(*given, fast=False), losses(*given, fast=True, wrapped=wrapped)
    assert bool(calls) is not looks_for_unused
    assert float(found[0]) == pytest.approx(float(wanted[0]), rel=1e-12)
    assert found[3].keys() == wanted[3].keys()


def test_rows_of_evaluation_are_the_log_softmaxs(poisoned_memory):
    hidden, weight = torch.randn(50, 8, dtype=torch.float64), torch.randn(40, 8, dtype=torch.float64) * 30
    target = torch.randint(0, 40, (50,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_chunks, "CHUNK", 40 * 16)
        found = by_chunks.negative_log_likelihoods(hidden, weight, target)
    wanted = -torch.log_softmax(hidden @ weight.t(), 1).gather(1, target[:, None]).squeeze(1)
    assert torch.allclose(found, wanted, rtol=1e-12)


def test_the_gradient_of_three_losses_is_three_gradients(poisoned_memory):
    leaves = [torch.randn(20, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)]
    loss, _ = by_chunks.cross_entropy(*leaves, torch.randint(0, 30, (20,)), 0.1)
    once = torch.autograd.grad(loss, leaves, retain_graph=True)
    for one, three in zip(once, torch.autograd.grad(3 * loss, leaves), strict=True):
        torch.testing.assert_close(three, 3 * one)


def test_a_loss_of_its_own_or_by_token_is_left_to_fairseq():
    class Doubled(CrossEntropyCriterion):
        def compute_loss(self, *given, **options):
            loss, _ = super().compute_loss(*given, **options)
            return 2 * loss, 2 * loss

    task = SimpleNamespace(target_dictionary=toy.dictionary())
    model, target = toy.build(*LM).eval(), torch.randint(4, 16, (3, 9))
    sample = {"net_input": {"src_tokens": target}, "target": target, "ntokens": 27}
    with fast_step(), torch.no_grad():
        assert CrossEntropyCriterion(task, False)(model, sample, reduce=False)[0].numel() == 27
        one, two = (kind(task, False)(model, sample)[0] for kind in (CrossEntropyCriterion, Doubled))
    torch.testing.assert_close(two, 2 * one)


def test_a_second_derivative_is_refused_and_not_dropped():
    hidden, weight = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    loss, _ = by_chunks.cross_entropy(hidden, weight, torch.tensor([0, 1, 2, 3]))
    (gradient,) = torch.autograd.grad(loss, hidden, create_graph=True)
    for source in (hidden, weight):
        with pytest.raises(RuntimeError, match="second derivative"):
            torch.autograd.grad(gradient.square().sum(), source, retain_graph=True)


def test_an_output_layer_that_is_no_plain_product_is_left_to_fairseq():
    decoder = toy.build(*LM).decoder
    assert output_weight(decoder) is not None
    usual = type(decoder)
    decoder.__class__ = type("Own", (usual,), {"get_normalized_probs": lambda self, *args, **more: None})
    assert output_weight(decoder) is None
    decoder.__class__ = usual
    with torch.autocast("cpu", torch.bfloat16):
        assert output_weight(decoder) is None
    decoder.output_projection = torch.nn.Linear(32, 16)  # with a bias
    assert output_weight(decoder) is None
    assert output_weight(toy.build(*LM).half().decoder) is None
    adaptive = toy.build(*LM, "--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8")
    assert output_weight(adaptive.decoder) is None


def test_a_model_of_fairseqs_with_a_forward_of_its_own_trains():
    """``transformer_align``'s takes no ``features_only``."""
    loss, *_, gradients = losses("transformer_align", LabelSmoothedCrossEntropyCriterion, False, [], False, fast=True)
    assert loss.isfinite() and gradients


# ---------------------------------------------------------------------------------------------------------------- Adam


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_fused_adam_makes_fairseqs_updates(weight_decay):
    torch.manual_seed(1)
    start = [torch.randn(5, 4), torch.randn(7)]
    made = []
    for take_step in (Adam.step, fused_step):
        parameters = [torch.nn.Parameter(x.clone()) for x in start]
        # an eps that counts: added to the uncorrected root of the second moment
        optimizer = Adam(parameters, lr=0.01, betas=(0.9, 0.98), eps=0.05, weight_decay=weight_decay)
        generator = torch.Generator().manual_seed(2)
        for update in range(20):
            for number, parameter in enumerate(parameters):
                parameter.grad = torch.randn(parameter.shape, generator=generator)
                if number == 1 and update % 3 == 0:
                    parameter.grad = None  # its count of updates falls behind
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + update)
            take_step(optimizer)
        made.append((parameters, optimizer.state_dict()["state"]))
    for ours, theirs in zip(made[1][0], made[0][0], strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert [state["step"] for state in made[1][1].values()] == [state["step"] for state in made[0][1].values()]
    assert made[1][1][0].keys() == made[0][1][0].keys()


@pytest.mark.parametrize(("amsgrad", "dtype"), [(True, torch.float32), (False, torch.bfloat16)])
def test_an_adam_that_is_another_is_left_to_fairseq(amsgrad, dtype, monkeypatch):
    calls = []
    monkeypatch.setattr(adam, "_stock_step", lambda *_: calls.append(1))
    parameter = torch.nn.Parameter(torch.ones(3, dtype=dtype))
    parameter.grad = torch.ones_like(parameter)
    fused_step(Adam([parameter], amsgrad=amsgrad))
    assert calls == [1]


# ------------------------------------------------------------------------------------------------------------ training


def logged(folder, lines, monkeypatch, fast, arch):
    """The loss of every update."""
    monkeypatch.setenv(switch.VARIABLE, "1" if fast else "0")
    options = {
        "adam_betas": "(0.9, 0.98)", "lr": 0.0005, "lr_scheduler": "inverse_sqrt", "warmup_updates": 100,
        "clip_norm": 1.0, "weight_decay": 0.01, "tokens_per_sample": 16, "max_tokens": 256, "max_update": 200,
        "sample_break_mode": "none", "dropout": 0.0, "attention_dropout": 0.0, "decoder_input_dim": 32,
        "decoder_output_dim": 32, "share_decoder_input_output_embed": True, "no_progress_bar": True,
        "log_interval": 1, "disable_validation": True,
        "activation_fn": "gelu",  # a ReLU that one last bit switches is a difference of its own
    }  # fmt: skip
    found, stock = [], Trainer._reduce_and_log_stats

    def reduce_and_log(self, logs, size, *rest):
        found.append(float(sum(log["loss"] for log in logs)) / size)
        return stock(self, logs, size, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_reduce_and_log_stats", reduce_and_log)
        assert toy.train(lines, folder, arch, **options) == 0
    return found


def test_200_updates_have_the_losses_of_stock_fairseq(lines, tmp_path, monkeypatch):
    stock = logged(tmp_path / "stock", lines, monkeypatch, fast=False, arch="transformer_lm")
    fast = logged(tmp_path / "fast", lines, monkeypatch, fast=True, arch="gpam_lm")
    assert len(stock) == len(fast) == 200
    assert stock[-1] < 0.7 * stock[0]  # something was learnt
    assert fast == pytest.approx(stock, abs=1e-4)


def test_a_training_that_is_resumed_keeps_the_backends_that_it_began_with(lines, tmp_path):
    options = {"tokens_per_sample": 16, "sample_break_mode": "none", "disable_validation": True}
    path, chosen = tmp_path / "backends.json", calibration.Choices(None, {"one 16 causal": ["materialised"]})
    for updates, began_with in ((1, calibration.of_machine()), (2, chosen)):
        assert toy.train(lines, tmp_path, "gpam_lm", max_update=updates, **options) == 0
        assert calibration.current() == calibration.Choices.read(path) == began_with
        chosen.write(path)


def test_a_word_that_is_no_truth_value_is_named(monkeypatch, capsys):
    monkeypatch.setenv(switch.VARIABLE, "maybe")
    assert toy.gpam("train", "nowhere") == 2
    assert capsys.readouterr().err == "gpam_fairseq train: GPAM_FAST: got 'maybe', wanted true or false\n"


# ------------------------------------------------------------------------------------------------------------ products

_ON_AMD = """
import builtins, ctypes, io, sys
stock = builtins.open
lie = io.StringIO("processor : 0\\nvendor_id : AuthenticAMD\\n")
builtins.open = lambda name, *rest, **more: lie if name == "/proc/cpuinfo" else stock(name, *rest, **more)
sys.prefix = sys.argv[1]
import gpam_suite.run.worker  # which begins as all others do
from gpam_fairseq.trainer import products
import torch
answer = ctypes.CDLL(None)[products.FUNCTION]()
print(answer, products.state().told, products.state().slow, products.state().why)
print(float(torch.ones(3, 3).mm(torch.ones(3, 3)).sum()))
"""


@pytest.mark.skipif(not products._possible(), reason="MKL's slow path is there only")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_library_answers_for_mkl_on_amd(tmp_path):
    library = tmp_path / "lib" / "gpam" / "intel_products.so"
    products.build(library)
    command = [sys.executable, "-c", _ON_AMD, str(tmp_path)]
    done = subprocess.run(command, text=True, capture_output=True, check=True)
    assert done.stdout.splitlines() == [f"1 True False fast: {library}", "27.0"]


@pytest.mark.skipif(not products._possible(), reason="MKL's slow path is there only")
def test_whatever_is_wrong_with_the_library_is_said(tmp_path, monkeypatch):
    library = tmp_path / "intel_products.so"
    monkeypatch.setattr(products.processor, "facts", lambda: {"vendor_id": "AuthenticAMD"})
    monkeypatch.setattr(products, "library", lambda: library)
    assert products._load() == (False, "slow: torch was loaded before gpam_fairseq", True)
    monkeypatch.delitem(sys.modules, "torch")
    assert products._load()[1:] == (
        f"slow: {library} is missing; install a C compiler and run 'make setup' again",
        True,
    )
    library.write_bytes(b"\x7fELF")
    assert products._load().slow and products._load().why.startswith(f"slow: {library} cannot be used")
    monkeypatch.setenv(switch.VARIABLE, "0")
    assert products._load() == (False, "switched off (GPAM_FAST=0 or gpu.fast=false)", False)


def test_without_a_compiler_set_up_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert "slow" in products.build(tmp_path / "library.so") or not products._possible()
    assert not list(tmp_path.iterdir())
