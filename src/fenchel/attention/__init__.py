"""Attention with sparse weights."""

from fenchel.attention._function import entmax_attention, sparse_entmax_attention
from fenchel.attention.dense import attention_weights, weighted_values

__all__ = [
    "attention_weights",
    "entmax_attention",
    "sparse_entmax_attention",
    "weighted_values",
]
