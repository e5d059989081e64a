"""Attention by way of the dense weights, in plain torch: any device, any map, any derivative."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fenchel.maps import entmax


def attention_scores(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """(batch, heads, queries, keys), with -inf where a query may not look."""
    group = query.shape[1] // max(1, key.shape[1])
    key = key.repeat_interleave(group, 1) if group > 1 else key
    scores = (query * scale) @ key.transpose(-1, -2)
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask


def weighted_values(weights: Tensor, value: Tensor, dropout_p: float) -> Tensor:
    group = weights.shape[1] // max(1, value.shape[1])
    value = value.repeat_interleave(group, 1) if group > 1 else value
    return F.dropout(weights, dropout_p) @ value


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: float | Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float,
    normalizer: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The output; ``alpha`` is a number, (1,) or (batch, heads)."""
    scores = attention_scores(query, key, mask, is_causal, scale)
    if normalizer is not None:
        return weighted_values(normalizer(scores), value, dropout_p)
    if isinstance(alpha, Tensor):
        alpha = alpha[..., None, None] if alpha.dim() == 2 else alpha
    return weighted_values(entmax(scores, alpha), value, dropout_p)
