"""fairseq's transformers with a choice of attention: ``gpam_lm``, ``gpam_nmt``, and fairseq's presets of each."""

from argparse import ArgumentParser, Namespace
from typing import Any

from gpam_fairseq.config import GPAMLanguageModelConfig, GPAMTranslationConfig, attention_and_options
from gpam_fairseq.install import install_attention

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.models.transformer.transformer_legacy import (
    base_architecture,
    transformer_iwslt_de_en,
    transformer_wmt_en_de,
)
from fairseq.models.transformer_lm import TransformerLanguageModel, base_lm_architecture, transformer_lm_baevski_wiki103
from omegaconf import OmegaConf, open_dict

from gpam.errors import UsageError


def _widths_follow_decoder(cfg: Any) -> None:
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if getattr(cfg, name) is None:
            setattr(cfg, name, cfg.decoder_embed_dim)


def check_heads(cfg: Any, *stacks: str, prefix: str = "") -> None:
    """Refuse an ``encoder`` or ``decoder`` without a width, or whose heads do not divide it; ``prefix`` stands before
    the option."""
    for stack in stacks:
        heads, width = getattr(cfg, f"{stack}_attention_heads"), getattr(cfg, f"{stack}_embed_dim")
        if width < 1:
            raise UsageError(f"{prefix}{stack}_embed_dim: got {width}, wanted at least 1")
        if heads < 1 or width % heads:
            raise UsageError(
                f"{prefix}{stack}_attention_heads: got {heads} for {stack}_embed_dim {width}, "
                "wanted a number that divides it"
            )


@register_model("gpam_lm", dataclass=GPAMLanguageModelConfig)
class GPAMLanguageModel(TransformerLanguageModel):
    """fairseq's ``transformer_lm`` with the attention that ``attention`` names."""

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "GPAMLanguageModel":
        check_heads(args, "decoder")
        with open_dict(args):
            _widths_follow_decoder(args)
        return install_attention(
            super().build_model(args, task), *attention_and_options(args), backend=args.attention_backend
        )


@register_model("gpam_nmt", dataclass=GPAMTranslationConfig)
class GPAMTranslationModel(TransformerModelBase):
    """fairseq's ``transformer`` with the attention that ``attention`` names, in encoder, decoder and across."""

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        gen_parser_from_dataclass(parser, GPAMTranslationConfig(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "GPAMTranslationModel":
        flat = Namespace(**OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
        check_heads(flat, "encoder", "decoder")
        if flat.cross_self_attention:
            raise UsageError("cross_self_attention is not supported by gpam attention: leave it out")
        _widths_follow_decoder(flat)
        stock = super().build_model(TransformerConfig.from_namespace(flat), task)
        return install_attention(stock, *attention_and_options(flat), backend=flat.attention_backend)


register_model_architecture("gpam_lm", "gpam_lm_base")(base_lm_architecture)
register_model_architecture("gpam_lm", "gpam_lm_wiki103")(transformer_lm_baevski_wiki103)
register_model_architecture("gpam_nmt", "gpam_nmt_base")(base_architecture)
register_model_architecture("gpam_nmt", "gpam_iwslt_de_en")(transformer_iwslt_de_en)
register_model_architecture("gpam_nmt", "gpam_wmt_en_de")(transformer_wmt_en_de)
