"""Generalized probabilistic attention and its rivals, in plain PyTorch.

``gpam.attention`` holds the mechanisms; it needs neither fairseq nor Hydra.
"""

from gpam.errors import UsageError

__all__ = ["UsageError"]

__version__ = "0.1.0"
