"""The mechanisms in anybody's model: multi-head attention for PyTorch, and the conversion of a model that is there."""

from gpam.nn.convert import Conversion, convert
from gpam.nn.multihead import MultiheadAttention

__all__ = ["Conversion", "MultiheadAttention", "convert"]
