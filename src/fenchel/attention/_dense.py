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
    scores = (query * scale) @ _for_each_query_head(key, query).transpose(-1, -2)
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    normalizer: Callable[[Tensor], Tensor],
) -> Tensor:
    """Weights by any map, (batch, heads, queries, keys), scores being divided by √d."""
    return normalizer(attention_scores(query, key, mask, is_causal, query.shape[-1] ** -0.5))


def weighted_values(weights: Tensor, value: Tensor) -> Tensor:
    """The output from dense weights."""
    return weights @ _for_each_query_head(value, weights)


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """The output by way of all weights; ``alpha`` is (1,) or (batch, heads)."""
    scores = attention_scores(query, key, mask, is_causal, scale)
    weights = entmax(scores, alpha[..., None, None] if alpha.dim() == 2 else alpha)
    return weighted_values(F.dropout(weights, dropout_p), value)


def _for_each_query_head(x: Tensor, like: Tensor) -> Tensor:
    group = like.shape[1] // max(1, x.shape[1])
    return x.repeat_interleave(group, 1) if group > 1 else x
