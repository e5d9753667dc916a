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
from gpam.attention.reference import merge_heads, split_heads
from gpam_suite.inside import store
from gpam_suite.inside.measures import of_tokens
from gpam_suite.inside.models import composed, untrained
from gpam_suite.inside.observe import watching
from gpam_suite.inside.texts import texts

log = logging.getLogger(__name__)


def analyse_depth(results: Path, settings: DictConfig, paths: Any) -> Path:
    """``<results>/analysis/depth.json``: measures after ``settings.layers`` layers for each network, lambda+ and
    seed."""
    experiment = settings.experiment
    found: dict[str, Any] = {
        "experiment": experiment,
        "lambda_neg": settings.lambda_neg,
        "layers": list(settings.layers),
        "seeds": list(settings.depth_seeds),
        "networks": {"attention": [], "transformer": []},
    }
    contenders = [("softmax", {})]
    contenders += [("dagpam", {"lambda_pos": pos, "lambda_neg": settings.lambda_neg}) for pos in settings.lambda_pos]
    for name, options in contenders:
        rows: dict[str, list[Any]] = {"attention": [], "transformer": []}
        for seed in settings.depth_seeds:
            cfg = composed(
                f"experiment={experiment}",
                f"model={name}",
                f"seed={seed}",
                f"++fairseq.model.decoder_layers={max(settings.layers)}",
                *(f"model.{key}={value}" for key, value in options.items()),
            )
            model, task, prepared = untrained(cfg, paths)
            text = texts(task, prepared, 1)[0]
            with torch.no_grad(), watching(model) as seen:
                model(**text.arguments)
            start = seen.streams["decoder"][0]
            heads = cfg.fairseq.model.decoder_attention_heads
            found["dataset_label"], found["tokens"], found["width"] = cfg.dataset.label, *start.shape
            rows["transformer"].append(_measured(seen.streams["decoder"], settings.layers))
            rows["attention"].append(
                _measured(_attention_only(start, name, options, heads, settings, seed), settings.layers)
            )
        for network, by_seed in rows.items():
            found["networks"][network].append({"model": name, "label": cfg.model.label, **options, "seeds": by_seed})
        log.info("depth %d at initialisation: %s %s", max(settings.layers), name, options or "")
    return store.write(store.path_of(results, "depth"), found)


def _measured(stream: list[Tensor], layers: list[int]) -> dict[str, list[float]]:
    return of_tokens([stream[layer].double() for layer in layers])


@torch.no_grad()
def _attention_only(
    x: Tensor, name: str, options: dict[str, Any], heads: int, settings: DictConfig, seed: int
) -> list[Tensor]:
    """The tokens before the first and behind each layer, in float64; weights are drawn as fairseq draws them."""
    torch.manual_seed(seed)
    x, width = x.double(), x.shape[-1]
    site = Site(width, heads)
    stream = [x / x.square().mean().sqrt()]
    for _ in range(max(settings.layers)):
        w_q, w_k, w_v, w_o = (torch.empty(width, width, dtype=torch.float64) for _ in range(4))
        for weight in (w_q, w_k, w_v):
            nn.init.xavier_uniform_(weight, gain=2**-0.5)
        nn.init.xavier_uniform_(w_o)
        q, k, v = (split_heads((stream[-1] @ weight)[None], heads) for weight in (w_q, w_k, w_v))
        output, _ = build(name, site, options).double()(q, k, v)
        y = merge_heads(output)[0] @ w_o
        stream.append(y / y.square().mean().sqrt())
    return stream
