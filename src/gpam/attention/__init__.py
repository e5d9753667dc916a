"""Attention mechanisms by name: ``build("dagpam", Site(embed_dim=512, num_heads=8), {"lambda_neg": 0.5})``."""

from gpam.attention.base import Mechanism
from gpam.attention.registry import build, load_all, mechanism_class, names, options_of, register
from gpam.attention.site import Site

load_all()

__all__ = ["Mechanism", "Site", "build", "mechanism_class", "names", "options_of", "register"]
