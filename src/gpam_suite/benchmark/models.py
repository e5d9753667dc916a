"""Models for whole layers, training steps and decoding: stock fairseq and the plugin, alike from the same seed."""

import contextlib
import dataclasses
from argparse import Namespace
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from gpam_fairseq.attention import GPAMMultiheadAttention

import torch
from fairseq.models import build_model
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from omegaconf import OmegaConf
from torch import Tensor, nn

from gpam.attention import Mechanism
from gpam.errors import UsageError, did_you_mean
from gpam_suite.benchmark.peers import PEERS, Replaced
from gpam_suite.common.tasks import LM, NMT
from gpam_suite.data.binarise import new_dictionary
from gpam_suite.inside.observe import ask_for_weights

PAD, EOS, FIRST = 1, 2, 4  # of every fairseq dictionary: padding, the end of a sentence, the first word


@dataclasses.dataclass(frozen=True)
class Case:
    """A model's shape, and a batch of ``sentences`` of ``length`` tokens."""

    task: str
    vocabulary: int
    sentences: int
    length: int
    width: int
    ffn: int
    layers: int
    heads: int
    attention_dropout: float = 0.0

    @property
    def tokens(self) -> int:
        return self.sentences * self.length


CASES = {
    "lm_laptop": Case(LM.name, 4000, 16, 128, 128, 512, 6, 4),
    "nmt_laptop": Case(NMT.name, 2000, 100, 20, 128, 512, 3, 4),
    "lm_512": Case(LM.name, 8000, 4, 512, 512, 2048, 4, 8),
    "lm_512_dropout": Case(LM.name, 8000, 4, 512, 512, 2048, 4, 8, attention_dropout=0.1),
    "nmt_iwslt": Case(NMT.name, 8848, 68, 30, 512, 1024, 3, 4),
}


def case_of(shape: Mapping[str, Any]) -> Case:
    """One of ``CASES`` by its name ``model``, with the fields of ``shape`` over its own."""
    changed = dict(shape)
    name = changed.pop("model", None)
    if name not in CASES:
        raise UsageError(f"unknown model '{name}'{did_you_mean(name or '', CASES)} (wanted one of {', '.join(CASES)})")
    return dataclasses.replace(CASES[name], **changed)


def build(case: Case, contender: str, seed: int) -> nn.Module:
    """``stock`` is fairseq's own transformer; any other contender is a mechanism of the plugin, or a peer in it."""
    sizes = {"embed_dim": case.width, "ffn_embed_dim": case.ffn, "layers": case.layers, "attention_heads": case.heads}
    sides = ["decoder"] if case.task == LM.name else ["encoder", "decoder"]
    shape = {f"{side}_{key}": of for side in sides for key, of in {**sizes, "normalize_before": True}.items()}
    shape |= {"dropout": 0.0, "attention_dropout": case.attention_dropout, "share_decoder_input_output_embed": True}
    shape |= {"decoder_input_dim": case.width, "decoder_output_dim": case.width}
    if case.task == LM.name:
        shape |= {"max_target_positions": case.length, "tokens_per_sample": case.length}
        shape |= {"add_bos_token": False, "tpu": False}
    words = new_dictionary(case.vocabulary)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    torch.manual_seed(seed)
    if contender == "stock" and case.task == LM.name:
        return build_model(OmegaConf.create({"_name": "transformer_lm", **shape}), task).train()
    if contender == "stock":
        return TransformerModelBase.build_model(TransformerConfig.from_namespace(Namespace(**shape)), task).train()
    peer = PEERS.get(contender)
    attention = contender if peer is None else peer.of
    model = build_model(OmegaConf.create({"_name": f"gpam_{case.task}", "attention": attention, **shape}), task)
    for module in model.modules() if peer is not None else []:
        if isinstance(module, GPAMMultiheadAttention):
            module.mechanism = Replaced(module.mechanism, peer.compute)
    return model.train()


def batch(case: Case, seed: int) -> dict[str, Tensor]:
    """Random tokens; in translation a third of the sentences are a third shorter than the rest, so there is padding."""
    generator = torch.Generator().manual_seed(seed)
    size = (case.sentences, case.length)
    made = {side: torch.randint(FIRST, case.vocabulary, size, generator=generator) for side in ("source", "target")}
    if case.task == NMT.name:
        for text in made.values():
            text[: case.sentences // 3, case.length * 2 // 3 :] = PAD
    return made


def loss_of(case: Case, model: nn.Module, data: dict[str, Tensor]) -> Tensor:
    """Cross entropy a token of one batch, from a forward pass."""
    source, target = data["source"], data["target"]
    if case.task == LM.name:
        output, _ = model(source)
    else:
        shifted = torch.cat([torch.full_like(target[:, :1], EOS), target[:, :-1]], 1)
        output, _ = model(source, source.ne(PAD).sum(1), shifted)
    logits = output.flatten(0, 1).to(torch.promote_types(output.dtype, torch.float32))
    return nn.functional.cross_entropy(logits, target.flatten(), ignore_index=PAD)


@contextlib.contextmanager
def by_weights(model: nn.Module) -> Iterator[None]:
    """Within it every mechanism computes its weights and multiplies them with V: the plain way, to compare with."""
    with contextlib.ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, Mechanism | Replaced):
                hooks.enter_context(module.register_forward_pre_hook(ask_for_weights, with_kwargs=True))
        yield


def gradients(model: nn.Module) -> Tensor:
    """All gradients of a model in one vector, in the order of the parameters' names."""
    named = {name.replace("mechanism.mechanism.", "mechanism."): p.grad for name, p in model.named_parameters()}
    return torch.cat([named[name].flatten() for name in sorted(named) if named[name] is not None])
