"""What a training will cost, on paper: parameters, FLOPs, memory a device, tokens a second, hours, dollars.

The model is built by fairseq on torch's meta device, which has shapes and no numbers, so a large one costs nothing.

==================  ==========================================================================================
training FLOPs      ``F`` a target token: :func:`gpam_suite.run.flops.train_flops_per_token`
tokens an update    ``B = max_tokens x update_freq x fill``; ``fill``: whole samples of a language model, or
                    :data:`FILL` for sentences of different length
seconds an update   ``max(F B / (n R u), L t) + 28 P / W + 2 (n - 1) / n x G / K``
tokens a second     ``B / seconds an update``
hours               updates times seconds an update, and each validation's ``F / 3`` a token at ``n R u``, where the
                    size of the validation set is known; without evaluation
memory a device     ``S P`` + activations; ``S``: 16 bytes a parameter in float32 (weight, gradient, two moments of
                    Adam), 20 in fp16 and bf16, where fairseq keeps a float32 copy of weights and gradients
activations         ``(b (sum over layers of saved numbers) + 12 V) B / max(n, m)`` bytes, see :func:`saved_numbers`:
                    those of one batch, as the ``m = update_freq`` batches of an update come one after another
==================  ==========================================================================================

``n`` devices share each update's tokens (data parallel); ``R`` is a device's peak in the precision of the configuration
and ``u`` its utilisation; ``L`` operations are started an update, those of its layers once a batch, each in ``t``
seconds; ``P`` parameters; ``W`` is the memory's bandwidth: Adam reads weight, gradient, moments and writes all but the
gradient, 28 bytes; ``G`` bytes of gradients (4 P, or 2 P in half precision) go round a ring of links of ``K`` bytes a
second; ``V`` logits a token, the vocabulary or the first part of an adaptive softmax: they, their log-probabilities and
gradients in float32. Nothing is overlapped, no padding inside a batch is counted.

The facts and assumptions about devices are in :mod:`gpam_suite.tools.devices`; docs/plan.md says how well it predicts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError
from gpam_suite.common.formatting import MISSING, count, number
from gpam_suite.common.tasks import RECALL
from gpam_suite.config.compose import check, fairseq_config
from gpam_suite.config.controls import TRANSLATION_LENGTH
from gpam_suite.data import Prepared
from gpam_suite.tools.devices import Device, find_device

FILL = 0.85
"""Target tokens of a batch of sentences over ``max_tokens``, which counts padding and the longer side: 0.87 on the
generated CLDR pairs and 0.83 on Multi30k, with batches of 1,024."""
LAUNCHES_A_LAYER, LAUNCHES_A_TENSOR = 110, 10
"""Operations of a layer's forward and backward pass, and of clipping and fairseq's Adam for each parameter tensor."""
SPECIAL_SYMBOLS, VOCABULARY_MULTIPLE = 4, 8  # of fairseq's dictionary


@dataclass(frozen=True)
class Workload:
    """What an experiment asks of any device. ``assumed`` says which inputs are estimates."""

    parameters: dict[str, int]
    tensors: int
    layers: int
    flops_per_token: float
    tokens_per_update: float
    batches_per_update: float
    updates: int
    saved_per_token: float
    logits: int
    precision: str
    width: int
    ffn: int
    validation_tokens: float
    assumed: tuple[str, ...]

    @property
    def tokens(self) -> float:
        """Target tokens that are trained on; ``validation_tokens`` are those of all validations together."""
        return self.tokens_per_update * self.updates


@dataclass(frozen=True)
class Price:
    """A :class:`Workload` on ``devices`` of one kind; ``dollars`` is None where no price is known.
    ``starts_operations``: the time is that of starting operations, not of arithmetic."""

    devices: int
    seconds_per_update: float
    tokens_per_second: float
    hours: float
    state_bytes: float
    activation_bytes: float
    dollars: float | None
    starts_operations: bool

    @property
    def memory_bytes(self) -> float:
        """Of one device."""
        return self.state_bytes + self.activation_bytes


def plan(cfg: DictConfig) -> None:
    """Print the plan of a configuration (``configs/plan.yaml``)."""
    check(cfg)
    counts = [1] if cfg.device == "cpu" else list(cfg.devices)
    if not counts or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in counts):
        raise UsageError(f"devices: got {list(cfg.devices)}, wanted whole numbers of at least 1, for instance [1,4,8]")
    for key in ("utilisation", "dollars", "vocabulary", "sentence"):
        if cfg[key] is not None and (isinstance(cfg[key], str | bool) or cfg[key] <= 0):
            raise UsageError(f"{key}: got {cfg[key]}, wanted a number above zero")
    work = workload(cfg, find_prepared(cfg), cfg.vocabulary, cfg.sentence)
    product = (round(work.tokens_per_update), work.width, work.ffn)
    device = find_device(cfg.device, cfg.gpu.threads, product)
    prices = [price(work, device, n, cfg.utilisation, cfg.dollars) for n in counts]
    print("\n".join(lines(cfg, work, device, prices, cfg.utilisation, cfg.dollars)))


# ------------------------------------------------------------------------------------------------------- the workload


def find_prepared(cfg: DictConfig) -> Prepared | None:
    """A finished preparation of the configuration's data in ``paths.data``; None where there is none."""
    wanted = {key: OmegaConf.to_container(cfg[key], resolve=True) for key in ("dataset", "preprocessing")}
    for folder in sorted(Path(cfg.paths.data).glob(f"{cfg.dataset.name}-*")):
        try:
            prepared = Prepared.load(folder)
        except (OSError, ValueError):
            continue
        if all(wanted[key].items() <= prepared.manifest.get(key, {}).items() for key in wanted):
            return prepared
    return None


def workload(
    cfg: DictConfig, prepared: Prepared | None = None, vocabulary: int | None = None, sentence: float | None = None
) -> Workload:
    """The workload of a composed configuration, or of a run's ``config.yaml``.

    Raises:
        UsageError: the vocabulary is neither given nor known nor to be guessed; a recurrent network.
    """
    from gpam_suite.run.flops import lengths, train_flops_per_token
    from gpam_suite.run.parameters import count_parameters

    complete = fairseq_config(cfg)
    if "decoder_ffn_embed_dim" not in complete.model:
        raise UsageError(f"model={cfg.model.name}: only a Transformer has a plan of its cost, choose one")
    assumed: list[str] = []
    sizes = _vocabularies(cfg, prepared, vocabulary, assumed)
    model = build_on_meta(complete, *sizes)
    sample = complete.task.get("tokens_per_sample")
    target, source = _lengths(prepared, sample, sentence, assumed, lengths)
    most, frequencies = complete.dataset.max_tokens, complete.optimization.update_freq
    batches = sum(frequencies) / len(frequencies)
    fill = most // sample * sample / most if sample else FILL
    if not sample:
        assumed.append(f"{FILL:.0%} of max_tokens are target tokens")
    common, sizes_of = complete.common, complete.model
    return Workload(
        parameters=count_parameters(model),
        tensors=sum(1 for _ in model.parameters()),
        layers=sum(len(stack.layers) for stack in (getattr(model, "encoder", None), model.decoder) if stack),
        flops_per_token=train_flops_per_token(model, target, source),
        tokens_per_update=most * fill * batches,
        batches_per_update=batches,
        updates=complete.optimization.max_update,
        saved_per_token=sum(saved_numbers(model, target, source or target)),
        logits=_logits(complete, sizes[-1]),
        precision="bf16" if common.bf16 else "fp16" if common.fp16 else "fp32",
        width=sizes_of.decoder_embed_dim,
        ffn=sizes_of.decoder_ffn_embed_dim,
        validation_tokens=_validation_tokens(cfg, prepared, complete, assumed),
        assumed=tuple(assumed),
    )


def _logits(complete: DictConfig, vocabulary: int) -> int:
    """Logits of a token: all, or those of an adaptive softmax's frequent words and one for each further cluster."""
    cutoffs = complete.model.get("adaptive_softmax_cutoff")
    if complete.criterion.get("_name") != "adaptive_loss" or not cutoffs:
        return vocabulary
    clusters = str(cutoffs).split(",")
    return int(clusters[0]) + len(clusters)


def build_on_meta(complete: DictConfig, source: int, target: int) -> Any:
    """The model of a complete fairseq configuration for dictionaries of ``source`` and ``target`` entries, without
    memory for its parameters."""
    import gpam_fairseq  # noqa: F401, I001  (before fairseq)
    import torch
    from fairseq.models import build_model

    dictionaries = [_dictionary(source)]
    dictionaries.append(dictionaries[0] if complete.model.get("share_all_embeddings") else _dictionary(target))
    task = SimpleNamespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[1])
    with torch.device("meta"):
        return build_model(OmegaConf.create(OmegaConf.to_container(complete.model)), task)


def _dictionary(size: int) -> Any:
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for index in range(len(dictionary), size):
        dictionary.add_symbol(f"symbol{index}")
    return dictionary


def _vocabularies(cfg: DictConfig, prepared: Prepared | None, given: int | None, assumed: list[str]) -> tuple[int, int]:
    """Entries of the source and target dictionaries; the same twice for a language model."""
    if given is not None:
        return given, given
    if prepared is not None:
        found = prepared.manifest["dictionary"]
        return (found["source"], found["target"]) if isinstance(found, dict) else (found, found)
    symbols = _expected_symbols(cfg)
    if symbols is None:
        raise UsageError(
            f"the vocabulary of data set {cfg.dataset.name} is not known before it is prepared; give it as "
            "vocabulary=NUMBER, or prepare the data first (scripts/prepare.py)"
        )
    size = ceil((symbols + SPECIAL_SYMBOLS) / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    assumed.append(f"a vocabulary of {size:,}")
    return size, size


def _expected_symbols(cfg: DictConfig) -> int | None:
    """Symbols that the text will have: sub-words as many as were asked for, bytes or words as the data set says."""
    dataset = cfg.dataset
    if cfg.preprocessing.bpe in ("subword_nmt", "sentencepiece"):
        return cfg.preprocessing.bpe_size
    if dataset.get("types") is not None:
        return dataset.types
    if dataset.task == RECALL.name:
        return dataset["values"] + dataset.get("keys", 0) + 2  # the mark in front of the answers, and a filler
    return OmegaConf.select(cfg, "dataset.expect.train.types")


def _lengths(
    prepared: Prepared | None, sample: int | None, sentence: float | None, assumed: list[str], lengths: Any
) -> tuple[float, float | None]:
    """Target and source tokens of a sentence, or of a language model's sample and None."""
    if sentence is not None and not sample:
        return float(sentence), float(sentence)
    if prepared is not None or sample:
        return lengths(prepared, sample)
    assumed.append(f"sentences of {TRANSLATION_LENGTH} tokens")
    return float(TRANSLATION_LENGTH), float(TRANSLATION_LENGTH)


def _validation_tokens(cfg: DictConfig, prepared: Prepared | None, complete: DictConfig, assumed: list[str]) -> float:
    """Tokens of the validation set times the validations, 0 where its size is not known."""
    if prepared is not None:
        counts = prepared.manifest["splits"]["valid"]
        size = (counts.get("target") or counts)["tokens"]
    else:
        size = OmegaConf.select(cfg, "dataset.expect.valid.tokens") or OmegaConf.select(cfg, "dataset.split.valid")
        assumed.append(f"validation sets of {size:,} tokens" if size else "validations that take no time")
    every = complete.dataset.validate_interval_updates
    return (size or 0) * (complete.optimization.max_update // every if every else 0)


def saved_numbers(model: Any, target: float, source: float) -> Iterator[float]:
    """Numbers that each layer keeps for its backward pass, for each target token.

    A layer of width ``d`` and feed-forward width ``f`` keeps: the inputs of its two layer norms and what they give
    (4 d), queries, keys, values, the attention's output and what goes into the output projection (5 d), the hidden
    units (f); cross attention: the input and output of its layer norm, queries, output, its projection's input (5 d)
    and keys and values of the source (2 d). A dropout mask behind each block is a byte a number. An attention keeps its
    weights (:func:`_kept_weights`), as it does on a CPU for rows of up to a few hundred keys; longer rows and a fused
    kernel on a GPU keep fewer, so long samples are overestimated.
    """
    for stack in (getattr(model, "encoder", None), model.decoder):
        if stack is None:
            continue
        length = target if stack is model.decoder else source
        for layer in stack.layers:
            width, hidden = layer.fc1.in_features, layer.fc1.out_features
            mask = width / 4 if layer.dropout_module.p else 0.0
            yield length / target * (9 * width + hidden + 2 * mask + _kept_weights(layer.self_attn, length))
            if getattr(layer, "encoder_attn", None) is not None:
                yield 5 * width + mask + 2 * width * source / target + _kept_weights(layer.encoder_attn, source)


def _kept_weights(attention: Any, keys: float) -> float:
    """``heads x keys`` numbers a branch, and for each branch after the first a query before and after its map (2 d).

    Branches are the products of the mechanism's formula less the one with the values.
    """
    mechanism = attention.mechanism
    site, length = mechanism.site, round(keys)
    products = mechanism.facts.flops(site, length, length, mechanism.options) // (2 * length**2 * site.embed_dim)
    branches = max(products - 1, 1)
    return branches * site.num_heads * keys + (branches - 1) * 2 * site.embed_dim


# ---------------------------------------------------------------------------------------------------------- the price


def price(
    work: Workload, device: Device, devices: int, utilisation: float | None = None, dollars: float | None = None
) -> Price:
    """``work`` on ``devices`` of the kind ``device``, by the formula above.

    Raises:
        UsageError: the device has no such precision.
    """
    if work.precision not in device.peak:
        known = ", ".join(device.peak)
        raise UsageError(f"{device.label} is not planned in {work.precision}; wanted one of {known} (fairseq.common)")
    total, half = work.parameters["total"], work.precision != "fp32"
    reached = device.peak[work.precision] * (utilisation or device.utilisation[work.precision])
    arithmetic = work.flops_per_token * work.tokens_per_update / devices / reached
    batches = max(1.0, work.batches_per_update / devices)  # one after another on each device
    launches = (LAUNCHES_A_LAYER * work.layers * batches + LAUNCHES_A_TENSOR * work.tensors) * device.launch_seconds
    gradients = total * (2 if half else 4)
    seconds = max(arithmetic, launches) + 28 * total / device.bandwidth
    seconds += 2 * (devices - 1) / devices * gradients / device.link
    validation = work.flops_per_token / 3 * work.validation_tokens / devices / reached
    hours = (seconds * work.updates + validation) / 3600
    rate = dollars if dollars is not None else device.dollars
    tokens = work.tokens_per_update / devices / batches
    return Price(
        devices=devices,
        seconds_per_update=seconds,
        tokens_per_second=work.tokens_per_update / seconds,
        hours=hours,
        state_bytes=total * (20 if half else 16),
        activation_bytes=tokens * (work.saved_per_token * (2 if half else 4) + 12 * work.logits),
        dollars=None if rate is None else rate * hours * devices,
        starts_operations=launches > arithmetic,
    )


# ------------------------------------------------------------------------------------------------------------ in words


def lines(
    cfg: DictConfig,
    work: Workload,
    device: Device,
    prices: list[Price],
    utilisation: float | None,
    dollars: float | None,
) -> list[str]:
    """The plan as a person reads it."""
    parts = ", ".join(f"{name} {count(value)}" for name, value in work.parameters.items() if name != "total")
    share = utilisation or device.utilisation[work.precision]
    origin = "given" if utilisation else "measured on published runs" if device.name == "cpu" else "assumed"
    rate = dollars if dollars is not None else device.dollars
    report = [
        f"{cfg.experiment_name}: {cfg.model.label}, recipe {cfg.recipe.name}, data {cfg.dataset.label}",
        f"  parameters        {count(work.parameters['total'])} ({parts})",
        f"  training FLOPs    {work.flops_per_token / 1e6:,.2f} million a target token, "
        f"{work.flops_per_token * work.tokens:.2e} in all",
        f"  training tokens   {count(work.tokens)} ({count(work.updates)} updates of {count(work.tokens_per_update)})",
        f"  device            {device.label}: {device.peak[work.precision] / 1e12:,.3g} TFLOP/s in {work.precision}, "
        f"of which {share:.0%} reached ({origin})",
        f"  price             {'not known' if rate is None else f'{rate:.2f} dollars an hour and device (assumed)'}",
        "",
        f"  {'devices':>7}  {'tokens/s':>12}  {'hours':>9}  {'dollars':>9}  {'GiB a device':>12}"
        "  (state + activations)",
    ]
    for item in prices:
        fits = "" if item.memory_bytes <= device.memory else "  more than it has"
        cost = MISSING if item.dollars is None else number(item.dollars)
        report.append(
            f"  {item.devices:>7}  {count(item.tokens_per_second):>12}  {item.hours:>9.3g}  {cost:>9}  "
            f"{_gib(item.memory_bytes):>12}  ({_gib(item.state_bytes)} + {_gib(item.activation_bytes)}){fits}"
        )
    if small := [str(item.devices) for item in prices if item.starts_operations]:
        report += [
            "",
            f"  With {', '.join(small)} device(s) an update is too small to keep them busy: its time is that of "
            f"starting operations ({device.launch_seconds * 1e6:.0f} microseconds each, assumed).",
        ]
    if work.assumed:
        report += ["", f"  Assumed, as the data are not prepared or not simulated: {', '.join(work.assumed)}."]
    return [*report, "  Without the evaluation at the end. Formula and accuracy: docs/plan.md"]


def _gib(amount: float) -> str:
    return f"{amount / 2**30:.2f}"
