"""Attention with sparse weights."""

from fenchel.attention._function import entmax_attention, sparse_entmax_attention

__all__ = [
    "entmax_attention",
    "sparse_entmax_attention",
]
