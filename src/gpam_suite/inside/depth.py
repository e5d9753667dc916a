"""Rank collapse at initialisation, by depth and by lambda+ (the paper's figure 5), in two networks:

- ``attention``: attention alone, ``X <- c [P_1 X W_V1, ..., P_H X W_VH] W_O`` without skip connection, layer norm,
  feed-forward part or mask, ``c`` such that entries have a mean square of 1: what the lemmas speak of;
- ``transformer``: the experiment's own language model (pre-LN, causal), only deeper.

Both with lambda- fixed and lambda+ varied, and softmax beside them.
"""

import logging
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from gpam.attention import Site, build
from gpam.attention.parts import merge_heads, split_heads
from gpam.errors import UsageError
from gpam_suite.common.options import finite, several, whole_number
from gpam_suite.common.tasks import LM
from gpam_suite.config.compose import composed
from gpam_suite.inside.measures import of_tokens
from gpam_suite.inside.models import untrained
from gpam_suite.inside.observe import observed
from gpam_suite.inside.texts import texts
from gpam_suite.records import store

log = logging.getLogger(__name__)
_LISTS = {"layers": 0, "depth_seeds": 0, "lambda_pos": None}
"""Options to the least whole number that they may hold; None: any number."""


def check_settings(settings: DictConfig) -> None:
    """Raise UsageError where a list is empty, or holds something else than numbers of its kind."""
    for name, least in _LISTS.items():
        if not (given := several(settings[name], name)):
            raise UsageError(f"{name}: got none, wanted numbers, as in {name}=[1,2]")
        for value in given:
            finite(value, name) if least is None else whole_number(value, least, name)
        if name == "layers" and not any(given):
            raise UsageError(f"layers: got {given}, wanted at least one above 0")
    finite(settings.lambda_neg, "lambda_neg")


def analyse_depth(results: Path, settings: DictConfig) -> Path:
    """``<results>/analysis/depth.json``: measures after ``settings.layers`` layers for each network, lambda+ and
    seed."""
    layers, seeds, lambdas = (list(settings[name]) for name in _LISTS)
    deepest = max(layers)
    found: dict[str, Any] = {
        "experiment": settings.depth_experiment,
        "lambda_neg": settings.lambda_neg,
        "layers": layers,
        "seeds": seeds,
        "networks": {"attention": [], "transformer": []},
    }
    varied = [{"lambda_pos": lambda_pos, "lambda_neg": settings.lambda_neg} for lambda_pos in lambdas]
    for name, options in [("softmax", {}), *(("dagpam", options) for options in varied)]:
        rows: dict[str, list[Any]] = {network: [] for network in found["networks"]}
        for seed in seeds:
            cfg = composed(
                f"experiment={settings.depth_experiment}",
                f"model={name}",
                f"seed={seed}",
                f"++fairseq.model.decoder_layers={deepest}",
                *(f"model.{key}={value}" for key, value in options.items()),
            )
            if cfg.dataset.task != LM.name or not cfg.fairseq.model.decoder_normalize_before:
                raise UsageError(
                    f"depth_experiment: got '{cfg.experiment_name}', wanted that of a pre-LN language model"
                )
            model, task, prepared = untrained(cfg, settings.paths)
            stream = observed(model, texts(task, prepared, 1)[0].arguments).streams["decoder"]
            found["dataset_label"], found["tokens"], found["width"] = cfg.dataset.label, *stream[0].shape
            site = Site(stream[0].shape[-1], cfg.fairseq.model.decoder_attention_heads)
            alone = _attention_only(stream[0], build(name, site, options).double(), deepest, seed)
            for network, own in (("transformer", stream), ("attention", alone)):
                rows[network].append(of_tokens([own[layer].double() for layer in layers]))
        for network, by_seed in rows.items():
            found["networks"][network].append({"model": name, "label": cfg.model.label, **options, "seeds": by_seed})
        log.info("depth %d at initialisation: %s %s", deepest, name, options or "")
    return store.write(store.path_of(results, "depth"), found)


def is_analysed(results: Path, settings: DictConfig) -> bool:
    """Whether :func:`analyse_depth` was called with these settings before."""
    found = store.read(store.path_of(results, "depth"))
    if not found:
        return False
    lambdas = [entry["lambda_pos"] for entry in found["networks"]["attention"] if "lambda_pos" in entry]
    before = found["experiment"], found["lambda_neg"], found["layers"], found["seeds"], lambdas
    names = ("depth_experiment", "lambda_neg", "layers", "depth_seeds", "lambda_pos")
    return before == tuple(settings[name] for name in names)


@torch.no_grad()
def _attention_only(x: Tensor, mechanism: nn.Module, layers: int, seed: int) -> list[Tensor]:
    """The tokens before the first and behind each layer, in float64; weights are drawn as fairseq draws them."""
    torch.manual_seed(seed)
    x, width, heads = x.double(), x.shape[-1], mechanism.site.num_heads
    stream = [x / x.square().mean().sqrt()]
    for _ in range(layers):
        w_q, w_k, w_v, w_o = (torch.empty(width, width, dtype=torch.float64) for _ in range(4))
        for weight in (w_q, w_k, w_v):
            nn.init.xavier_uniform_(weight, gain=2**-0.5)
        nn.init.xavier_uniform_(w_o)
        q, k, v = (split_heads((stream[-1] @ weight)[None], heads) for weight in (w_q, w_k, w_v))
        y = merge_heads(mechanism(q, k, v)[0])[0] @ w_o
        stream.append(y / y.square().mean().sqrt())
    return stream
