"""The plugin's fairseq configurations: fairseq's own options, the mechanism's name, and every mechanism's options.

They are flat, as fairseq's command line and Hydra both want, and made from the declarations, not written out:
``TransformerConfig`` is nested, and its ``from_namespace`` drops unknown keys of a Hydra configuration silently.
"""

import dataclasses
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from omegaconf import DictConfig, OmegaConf

from gpam.attention import mechanism_class, names
from gpam.attention.functional import BACKENDS, GPU_BACKENDS
from gpam.attention.registry import all_options


def attention_fields() -> list[tuple[str, Any, Any]]:
    """``attention``, how it is computed, and every mechanism's options. ``None`` means: the mechanism's own default.

    The name is a text, which the registry checks: its error says which name may have been meant.

    Raises:
        ValueError: an option has the name of one of fairseq's, which it would replace.
    """
    metadata = {"help": f"attention mechanism, one of {', '.join(names())} (default: softmax)"}
    fields = [("attention", str, dataclasses.field(default="softmax", metadata=metadata))]
    ways = {
        "help": f"how sums of softmaxes are computed: auto, {', '.join(BACKENDS + GPU_BACKENDS)} (docs/performance.md)"
    }
    fields.append(("attention_backend", str, dataclasses.field(default="auto", metadata=ways)))
    fairseqs = {field.name for field in dataclasses.fields(TransformerLanguageModelConfig)}
    fairseqs |= {name for name, *_ in _flat_transformer_fields()}
    for name, declared in all_options().items():
        owners = [
            owner for owner in names() if name in {f.name for f in dataclasses.fields(mechanism_class(owner).Options)}
        ]
        if name in fairseqs:
            raise ValueError(f"attention '{owners[0]}': its option '{name}' is one of fairseq's own; name it otherwise")
        of = f"; one of {', '.join(choices)}" if (choices := declared.metadata["choices"]) else ""
        metadata = {"help": f"{'/'.join(owners)}: {declared.metadata['help']} (default: {declared.default}{of})"}
        fields.append((name, Optional[type(declared.default)], dataclasses.field(default=None, metadata=metadata)))
    return fields


def _flat_transformer_fields() -> list[tuple[str, Any, Any]]:
    """The fields of fairseq's nested ``TransformerConfig`` under the names of its command line."""
    fields = []
    for outer in dataclasses.fields(TransformerConfig):
        if outer.name == "_name":
            continue
        if dataclasses.is_dataclass(outer.type):
            for inner in dataclasses.fields(outer.type):
                if inner.name not in ("_name", "input_dim", "output_dim", "layers_to_keep"):
                    fields.append((f"{outer.name}_{inner.name}", inner.type, _copy(inner)))
        else:
            fields.append((outer.name, outer.type, _copy(outer)))
    for name in ("encoder_layers_to_keep", "decoder_layers_to_keep"):
        keep = {"help": "which layers to keep when pruning, separated by commas"}
        fields.append((name, Optional[str], dataclasses.field(default=None, metadata=keep)))
    return fields + _unset_widths()


def _copy(field: dataclasses.Field) -> Any:
    return dataclasses.field(default=field.default, metadata=dict(field.metadata))


def _unset_widths() -> list[tuple[str, Any, Any]]:
    """fairseq's language model takes 512 for these whatever the decoder's width is; unset, they follow it."""
    metadata = {"help": "default: the decoder's width"}
    widths = ("decoder_input_dim", "decoder_output_dim")
    return [(name, Optional[int], dataclasses.field(default=None, metadata=metadata)) for name in widths]


GPAMLanguageModelConfig = dataclasses.make_dataclass(
    "GPAMLanguageModelConfig",
    _unset_widths() + attention_fields(),
    bases=(TransformerLanguageModelConfig,),
    namespace={"__module__": __name__},
)
GPAMTranslationConfig = dataclasses.make_dataclass(
    "GPAMTranslationConfig",
    _flat_transformer_fields() + attention_fields(),
    bases=(FairseqDataclass,),
    namespace={"__module__": __name__},
)


def attention_and_options(cfg: Any) -> tuple[str, dict[str, Any]]:
    """The mechanism's name and the options that were given, from a model configuration of this plugin.

    Options of other mechanisms are left unset by fairseq's command line and by Hydra; a set one is passed on, so
    that the registry can refuse it.
    """
    values = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True) if isinstance(cfg, DictConfig) else vars(cfg)
    return values["attention"], {name: values[name] for name in all_options() if values.get(name) is not None}
