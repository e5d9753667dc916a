"""Generalized probabilistic attention and its rivals, in plain PyTorch.

``gpam.attention`` holds the mechanisms, ``gpam.nn`` puts them into models, ``gpam.analysis`` measures what they do.
"""

from gpam.errors import UsageError

__all__ = ["UsageError"]

__version__ = "0.1.0"
