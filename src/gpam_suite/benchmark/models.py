"""Models for whole layers, training steps and decoding: stock fairseq and the plugin, alike from the same seed."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from omegaconf import OmegaConf
from torch import Tensor, nn

from gpam.attention import Mechanism, names
from gpam.errors import UsageError, did_you_mean
from gpam_suite.benchmark.peers import PEERS, Replaced, put_in_place
from gpam_suite.benchmark.real_lengths import real_batches
from gpam_suite.benchmark.settings import Settings
from gpam_suite.common.tasks import LM, NMT


@dataclasses.dataclass(frozen=True)
class Case:
    """A model's shape, and a batch of ``sentences`` of ``length`` tokens; or, with ``lengths``, batches of at most
    ``sentences * length`` tokens with the lengths in those files (:mod:`gpam_suite.benchmark.real_lengths`).
    """

    name: str
    task: str
    vocabulary: int
    sentences: int
    length: int
    width: int
    ffn: int
    layers: int
    heads: int
    attention_dropout: float = 0.0
    lengths: str | None = None
    languages: tuple[str, str] = ("de", "en")

    @property
    def tokens(self) -> int:
        return self.sentences * self.length


CASES = {
    case.name: case
    for case in (
        Case("lm_laptop", LM.name, 4000, 16, 128, 128, 512, 6, 4),
        Case("nmt_laptop", NMT.name, 2000, 100, 20, 128, 512, 3, 4),
        Case("lm_512", LM.name, 8000, 4, 512, 512, 2048, 4, 8),
        Case("lm_512_dropout", LM.name, 8000, 4, 512, 512, 2048, 4, 8, attention_dropout=0.1),
        Case("nmt_iwslt", NMT.name, 8848, 68, 30, 512, 1024, 3, 4),
    )
}


def case_of(shape: Mapping[str, Any]) -> Case:
    """One of ``CASES`` by its name ``model``, with the fields of ``shape`` over its own."""
    changed = dict(shape)
    name = changed.pop("model", None)
    if name not in CASES:
        raise UsageError(f"unknown model '{name}'{did_you_mean(name or '', CASES)} (wanted one of {', '.join(CASES)})")
    return dataclasses.replace(CASES[name], **changed)


def contender_names() -> dict[str, str]:
    """Every contender of a whole model and the mechanism it computes: stock fairseq, the registry, the peers."""
    peers = {name: peer.of for name, peer in PEERS.items() if name != "softmax-fairseq"}
    return {"stock": "softmax"} | {name: name for name in names()} | peers


def build(case: Case, contender: str, seed: int) -> nn.Module:
    """``stock`` is fairseq's own transformer; any other contender is a mechanism of the plugin, or a peer in it."""
    dictionary = Dictionary()
    for index in range(case.vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    shape = {
        f"{side}_{key}": value
        for side in (("decoder",) if case.task == LM.name else ("encoder", "decoder"))
        for key, value in {
            "embed_dim": case.width,
            "ffn_embed_dim": case.ffn,
            "layers": case.layers,
            "attention_heads": case.heads,
            "normalize_before": True,
        }.items()
    }
    shape |= {"dropout": 0.0, "attention_dropout": case.attention_dropout, "share_decoder_input_output_embed": True}
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    torch.manual_seed(seed)
    if contender == "stock":
        return build_model(_stock_config(case, shape), task).train()
    name = {LM.name: "gpam_lm", NMT.name: "gpam_nmt"}[case.task]
    lm = {"max_target_positions": case.length, "tokens_per_sample": case.length, "add_bos_token": False, "tpu": False}
    extra = lm if case.task == LM.name else {}
    peer = PEERS.get(contender)
    attention = contender if peer is None else peer.of
    model = build_model(OmegaConf.create({"_name": name, "attention": attention, **shape, **extra}), task)
    if peer is not None:
        put_in_place(model, peer)
    return model.train()


def _stock_config(case: Case, shape: dict[str, Any]) -> Any:
    if case.task == LM.name:
        extra = {
            "decoder_input_dim": case.width,
            "decoder_output_dim": case.width,
            "tpu": False,
            "add_bos_token": False,
        }
        extra |= {"max_target_positions": case.length, "tokens_per_sample": case.length}
        return OmegaConf.create({"_name": "transformer_lm", **shape, **extra})
    from argparse import Namespace

    from fairseq.models.transformer.transformer_legacy import base_architecture

    arguments = Namespace(arch="transformer", **shape)
    base_architecture(arguments)
    return arguments


def batches(case: Case, settings: Settings) -> list[dict[str, Tensor]]:
    """What a training step reads: one random batch, or some with real lengths."""
    if case.lengths is None:
        return [batch(case, settings.seed)]
    languages = tuple(case.languages)
    return real_batches(
        settings.paths.get("mirror"), case.lengths, languages, case.tokens, case.vocabulary, settings.seed
    )


def batch(case: Case, seed: int) -> dict[str, Tensor]:
    """Random tokens; in translation a third of the sentences are a third shorter than the rest, so there is padding."""
    generator = torch.Generator().manual_seed(seed)

    def tokens() -> Tensor:
        return torch.randint(4, case.vocabulary, (case.sentences, case.length), generator=generator)

    made = {"source": tokens(), "target": tokens()}
    if case.task == NMT.name:
        for text in made.values():
            text[: case.sentences // 3, case.length * 2 // 3 :] = 1
    return made


def loss_of(case: Case, model: nn.Module, data: dict[str, Tensor]) -> Tensor:
    """Cross entropy a token of one batch, from a forward pass."""
    target = data["target"]
    if case.task == LM.name:
        output, _ = model(data["source"])
    else:
        lengths = data["source"].ne(1).sum(1)
        output, _ = model(data["source"], lengths, torch.cat([torch.full_like(target[:, :1], 2), target[:, :-1]], 1))
    logits = output.flatten(0, 1).to(torch.promote_types(output.dtype, torch.float32))
    return nn.functional.cross_entropy(logits, target.flatten(), ignore_index=1)


@contextlib.contextmanager
def by_weights(model: nn.Module) -> Iterator[None]:
    """Within it every mechanism computes its weights and multiplies them with V: the plain way, to compare with."""

    def ask_for_weights(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return args, kwargs | {"need_weights": True}

    asked = [module for module in model.modules() if isinstance(module, Mechanism | Replaced)]
    hooks = [module.register_forward_pre_hook(ask_for_weights, with_kwargs=True) for module in asked]
    yield
    for hook in hooks:
        hook.remove()


def gradients(model: nn.Module) -> Tensor:
    """All gradients of a model in one vector, in the order of the parameters' names."""
    named = {name.replace("mechanism.mechanism.", "mechanism."): p.grad for name, p in model.named_parameters()}
    return torch.cat([named[name].flatten() for name in sorted(named) if named[name] is not None])
