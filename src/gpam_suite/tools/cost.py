"""What a training will cost, on paper: parameters, FLOPs, memory a device, tokens a second, hours, dollars.

The model is built by fairseq on torch's meta device, which has shapes and no numbers, so a large one costs nothing.
docs/cost.md has the formula, says how well it predicts and what is left out; the facts and assumptions about devices
are in :mod:`gpam_suite.tools.devices`.
"""

from dataclasses import dataclass
from itertools import chain
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import torch
from fairseq.models import build_model
from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError, in_a_line
from gpam_suite.common.formatting import count, number
from gpam_suite.common.options import one_of, positive, several, whole_number
from gpam_suite.common.tasks import NMT, RECALL
from gpam_suite.config.compose import check
from gpam_suite.config.controls import TRANSLATION_LENGTH
from gpam_suite.config.device_batches import samples, shared
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.data import Prepared
from gpam_suite.data.binarise import new_dictionary
from gpam_suite.data.options import check_preprocessing
from gpam_suite.data.prepared import MANIFEST
from gpam_suite.run.counts import count_parameters, lengths, train_flops_per_token
from gpam_suite.tools.devices import GPUS, UTILISATION, Device, measured_cpu

FILL = 0.85
"""Target tokens of a batch of sentences over ``max_tokens``, which counts padding and the longer side: 0.87 on the
generated CLDR pairs and 0.83 on Multi30k, with batches of 1,024."""
LAUNCHES_A_BATCH, LAUNCHES_AN_UPDATE = 6, 10
"""Operations for each parameter tensor: of the forward and backward pass, and of clipping and fairseq's Adam."""
_EXCHANGED = 2**28  # gradients, at most, that legacy_ddp copies to exchange them
SPECIAL_SYMBOLS, VOCABULARY_MULTIPLE = 4, 8  # of fairseq's dictionary


@dataclass(frozen=True)
class Workload:
    """What an experiment asks of any device: ``batches`` an update, ``saved`` numbers and ``logits`` of a token, the
    tokens of all validations together, width and feed-forward width. ``assumed`` says which inputs are estimates."""

    parameters: dict[str, int]
    tensors: int
    flops_per_token: float
    tokens_per_update: float
    batches: float
    updates: int
    saved: float
    logits: int
    precision: str
    validation_tokens: float
    widths: tuple[int, int]
    assumed: tuple[str, ...]


@dataclass(frozen=True)
class Price:
    """A :class:`Workload` on ``devices`` of one kind, memory that of one; ``dollars`` is None where no price is known.
    ``starts_operations``: the time is that of starting operations, not of arithmetic."""

    devices: int
    tokens_per_second: float
    hours: float
    state_bytes: float
    activation_bytes: float
    dollars: float | None
    starts_operations: bool


def plan(cfg: DictConfig) -> None:
    """Print the plan of a configuration (``configs/plan.yaml``).

    Raises:
        UsageError: a wrong option, or what :func:`workload` and :func:`price` refuse.
    """
    check(cfg)
    counts = [1] if cfg.device == "cpu" else [whole_number(n, 1, "devices") for n in several(cfg.devices, "devices")]
    if not counts:
        raise UsageError("devices: got none, wanted numbers of them, for instance [1,4,8]")
    for key in ("utilisation", "dollars"):
        if cfg[key] is not None:
            positive(cfg[key], key)
    for key in ("vocabulary", "sentence"):
        if cfg[key] is not None:
            whole_number(cfg[key], 1, key)
    if cfg.utilisation is not None and cfg.utilisation > 1:
        raise UsageError(f"utilisation: got {cfg.utilisation:g}, wanted a share of the peak, at most 1")
    if cfg.sentence is not None and cfg.dataset.task != NMT.name:
        raise UsageError(
            "sentence: is of translation alone; a language model reads fairseq.task.tokens_per_sample tokens"
        )
    one_of(cfg.device, [*GPUS, "cpu"], "device")
    complete = fairseq_config(cfg)
    for n in counts:
        shared(complete, n)
    work = workload(cfg, find_prepared(cfg), cfg.vocabulary, cfg.sentence)
    if cfg.device == "cpu":
        device = measured_cpu(cfg.gpu.threads, round(work.tokens_per_update), *work.widths)
    else:
        device = GPUS[cfg.device]
    utilisation = cfg.utilisation or UTILISATION[work.precision]
    dollars = device.dollars if cfg.dollars is None else cfg.dollars
    prices = [price(work, device, n, utilisation, dollars) for n in counts]
    origin = "given" if cfg.utilisation else "assumed, more with the fast step" if cfg.device == "cpu" else "assumed"
    print(f"{cfg.experiment_name}: {cfg.model.label}, recipe {cfg.recipe.name}, data {cfg.dataset.label}")
    of_price = "assumed" if cfg.dollars is None else "given"
    print("\n".join(lines(work, device, prices, f"{utilisation:.0%} reached ({origin})", dollars, of_price)))


def find_prepared(cfg: DictConfig) -> Prepared | None:
    """The last finished preparation of the configuration's data in ``paths.data``; None where there is none."""
    dataset, preprocessing = OmegaConf.to_container(cfg.dataset, resolve=True), check_preprocessing(cfg.preprocessing)
    wanted = {"dataset": dataset, "preprocessing": preprocessing}
    found = Path(cfg.paths.data).glob(f"{cfg.dataset.name}-*/{MANIFEST}")
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            prepared = Prepared.load(path.parent)
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
    complete = fairseq_config(cfg)
    if "decoder_ffn_embed_dim" not in complete.model:
        raise UsageError(f"model={cfg.model.name}: only a Transformer has a plan of its cost, choose one")
    assumed: list[str] = []
    sizes = _vocabularies(cfg, prepared, vocabulary, assumed)
    model = build_on_meta(complete, *sizes)
    sample, most = complete.task.get("tokens_per_sample"), complete.dataset.max_tokens
    if most is None:
        raise UsageError("fairseq.dataset.max_tokens: got none, wanted a number: a plan counts by tokens an update")
    if sample or (prepared is not None and sentence is None):
        target, source = lengths(prepared, sample)
    else:
        target = source = float(sentence or TRANSLATION_LENGTH)
        assumed += [] if sentence else [f"sentences of {TRANSLATION_LENGTH} tokens"]
    fill = samples(complete.dataset, sample) * sample / most if sample else FILL
    if not sample:
        assumed.append(f"{FILL:.0%} of max_tokens are target tokens")
    logits = sizes[-1]
    if complete.criterion.get("_name") == "adaptive_loss" and (
        cutoffs := complete.model.get("adaptive_softmax_cutoff")
    ):
        frequent, *others = str(cutoffs).split(",")
        logits = int(frequent) + 1 + len(others)  # and one for each cluster of the other words
    batches = sum(complete.optimization.update_freq) / len(complete.optimization.update_freq)
    return Workload(
        parameters=count_parameters(model),
        tensors=sum(1 for _ in model.parameters()),
        flops_per_token=train_flops_per_token(model, target, source),
        tokens_per_update=most * fill * batches,
        batches=batches,
        updates=complete.optimization.max_update,
        saved=saved_numbers(model, max(target, source or 0.0)),
        logits=logits,
        precision="bf16" if complete.common.bf16 else "fp16" if complete.common.fp16 else "fp32",
        validation_tokens=_validation_tokens(cfg, prepared, complete, assumed),
        widths=(complete.model.decoder_embed_dim, complete.model.decoder_ffn_embed_dim),
        assumed=tuple(assumed),
    )


def build_on_meta(complete: DictConfig, source: int, target: int) -> Any:
    """The model of a complete fairseq configuration for dictionaries of ``source`` and ``target`` entries, without
    memory for its parameters."""
    words = new_dictionary(source)
    shared = complete.model.get("share_all_embeddings")
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words if shared else new_dictionary(target))
    try:
        with torch.device("meta"):
            return build_model(OmegaConf.create(OmegaConf.to_container(complete.model)), task)
    except Exception as error:
        raise UsageError(f"fairseq cannot build this model: {in_a_line(error)}; correct the options") from None


def _vocabularies(cfg: DictConfig, prepared: Prepared | None, given: int | None, assumed: list[str]) -> tuple[int, int]:
    """Entries of the source and target dictionaries; the same twice for a language model. Before the preparation there
    are as many as sub-words were asked for, or as the data set says that it has."""
    if given is not None:
        return given, given
    if prepared is not None:
        found = prepared.manifest["dictionary"]
        return (found["source"], found["target"]) if isinstance(found, dict) else (found, found)
    dataset, preprocessing = cfg.dataset, check_preprocessing(cfg.preprocessing)
    if preprocessing["bpe_size"]:
        symbols = preprocessing["bpe_size"]
    elif dataset.task == RECALL.name:
        values = whole_number(dataset["values"], 2, "dataset.values")
        keys = whole_number(dataset.get("keys", 0), 0, "dataset.keys")
        symbols = values + keys + 2  # the mark in front of the answers, and a filler
    elif preprocessing["bpe"] == "characters" and dataset.kind != "characters":
        symbols = None  # its types are words
    else:
        symbols = dataset.get("types") or OmegaConf.select(dataset, "expect.train.types")
    if symbols is None:
        raise UsageError(
            f"the vocabulary of data set {dataset.name} is not known before it is prepared; give it as "
            "vocabulary=NUMBER, or prepare the data first (scripts/prepare.py)"
        )
    size = ceil((symbols + SPECIAL_SYMBOLS) / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    assumed.append(f"a vocabulary of {size:,}")
    return size, size


def _validation_tokens(cfg: DictConfig, prepared: Prepared | None, complete: DictConfig, assumed: list[str]) -> float:
    """Tokens of the validation set times the validations, 0 where its size is not known."""
    if prepared is not None:
        counts = prepared.manifest["splits"]["valid"]
        size = (counts.get("target") or counts)["tokens"]
    else:
        known = "dataset.split.valid" if cfg.dataset.kind == "characters" else "dataset.expect.valid.tokens"
        size = OmegaConf.select(cfg, known) or 0
        assumed.append(f"validation sets of {size:,} tokens" if size else "validations that take no time")
    if not (every := complete.dataset.validate_interval_updates):
        assumed.append("validations of each epoch that take no time")
        return 0
    return size * (complete.optimization.max_update // every)


def saved_numbers(model: Any, length: float) -> float:
    """Numbers that the layers keep for the backward pass, for each token of sentences of ``length`` on both sides.

    A layer of width ``d`` and feed-forward width ``f`` keeps: the inputs of its two layer norms and what they give
    (4 d), queries, keys, values, the attention's output and what goes into the output projection (5 d), the hidden
    units (f); cross attention: the input and output of its layer norm, queries, output, its projection's input (5 d)
    and keys and values of the source (2 d). An attention keeps ``heads x length`` weights a branch, and for each branch
    after the first a query before and after its map (2 d): so on a CPU for rows of up to a few hundred keys; longer
    rows and a fused kernel on a GPU keep fewer, so long samples are overestimated.
    """
    saved = 0.0
    stacks = [stack.layers for stack in (getattr(model, "encoder", None), model.decoder) if stack]
    for layer in chain(*stacks):
        cross = getattr(layer, "encoder_attn", None)
        saved += (9 + 7 * (cross is not None)) * layer.fc1.in_features + layer.fc1.out_features
        for attention in filter(None, (layer.self_attn, cross)):
            mechanism, keys = attention.mechanism, round(length)
            site = mechanism.site
            flops = mechanism.facts.flops(site, keys, keys, mechanism.options)
            branches = max(1, flops // (2 * keys**2 * site.embed_dim) - 1)  # products but for the one with the values
            saved += branches * site.num_heads * length + (branches - 1) * 2 * site.embed_dim
    return saved


def price(work: Workload, device: Device, devices: int, utilisation: float, dollars: float | None = None) -> Price:
    """``work`` on ``devices`` of the kind ``device``; ``dollars`` an hour and device.

    Raises:
        UsageError: the device has no such precision.
    """
    total, half = work.parameters["total"], work.precision != "fp32"
    reached = devices * device.peak(work.precision) * utilisation
    arithmetic = work.flops_per_token * work.tokens_per_update / reached
    batches = max(1.0, work.batches / devices)  # one after another on each device
    launches = (LAUNCHES_A_BATCH * batches + LAUNCHES_AN_UPDATE) * work.tensors * device.launch_seconds
    seconds = max(arithmetic, launches)
    hours = (seconds * work.updates + work.flops_per_token / 3 * work.validation_tokens / reached) / 3600
    tokens = work.tokens_per_update / devices / batches
    exchanged = min(total, _EXCHANGED) * (2 if half else 4) if devices > 1 else 0
    return Price(
        devices=devices,
        tokens_per_second=work.tokens_per_update / seconds,
        hours=hours,
        state_bytes=total * (20 if half else 16) + exchanged,
        activation_bytes=tokens * (work.saved * (2 if half else 4) + 12 * work.logits),
        dollars=None if dollars is None else dollars * hours * devices,
        starts_operations=launches > arithmetic,
    )


def lines(
    work: Workload, device: Device, prices: list[Price], reached: str, dollars: float | None, of_price: str
) -> list[str]:
    """The plan as a person reads it."""
    parts = ", ".join(f"{name} {count(value)}" for name, value in work.parameters.items() if name != "total")
    tokens = work.tokens_per_update * work.updates
    rate = "not known" if dollars is None else f"{dollars:.2f} dollars an hour and device ({of_price})"
    report = [
        f"  parameters        {count(work.parameters['total'])} ({parts})",
        f"  training FLOPs    {work.flops_per_token / 1e6:,.2f} million a target token, "
        f"{work.flops_per_token * tokens:.2e} in all",
        f"  training tokens   {count(tokens)} ({count(work.updates)} updates of {count(work.tokens_per_update)})",
        f"  device            {device.label}: {device.peak(work.precision) / 1e12:,.3g} TFLOP/s in {work.precision}, "
        f"of which {reached}",
        f"  price             {rate}",
        "",
        "  devices      tokens/s      hours    dollars  GiB a device  (state + activations)",
    ]
    for item in prices:
        state, activations = item.state_bytes / 2**30, item.activation_bytes / 2**30
        fits = "" if item.state_bytes + item.activation_bytes <= device.memory else "  more than it has"
        report.append(
            f"  {item.devices:>7}  {count(item.tokens_per_second):>12}  {item.hours:>9.3g}  {number(item.dollars):>9}  "
            f"{state + activations:>12.2f}  ({state:.2f} + {activations:.2f}){fits}"
        )
    if small := [str(item.devices) for item in prices if item.starts_operations]:
        report += [
            "",
            f"  With {', '.join(small)} device(s) an update is too small to keep them busy: its time is that of "
            f"starting operations ({device.launch_seconds * 1e6:.0f} microseconds each, assumed).",
        ]
    if work.assumed:
        report += ["", f"  Assumed, not counted in the data: {', '.join(work.assumed)}."]
    return [*report, "  Without the evaluation at the end. Formula and accuracy: docs/cost.md"]
