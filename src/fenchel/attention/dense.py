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
    (key,) = without_unseen(mask, query, key)
    scores = (query * scale) @ _for_each_query_head(key, query).transpose(-1, -2)
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask


def without_unseen(mask: Tensor | None, query: Tensor, *of_keys: Tensor) -> tuple[Tensor, ...]:
    """Keys or values with 0 where no query may look: what padding holds does not matter, even NaN.

    A product with a weight of 0 would make it matter, in the output or in a gradient.
    """
    if mask is None:
        return of_keys
    open_ = mask if mask.dtype == torch.bool else mask != -math.inf
    seen = open_.expand(*query.shape[:2], *mask.shape[-2:]).any(-2)  # (batch, heads, keys)
    cleaned = []
    for x in of_keys:
        by_group = seen.reshape(seen.shape[0], x.shape[1], -1, seen.shape[-1]).any(2)
        cleaned.append(torch.where(by_group.unsqueeze(-1), x, 0.0))
    return tuple(cleaned)


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
    (value,) = without_unseen(mask, query, value)
    return weighted_values(F.dropout(weights, dropout_p), value)


def _for_each_query_head(x: Tensor, like: Tensor) -> Tensor:
    group = like.shape[1] // max(1, x.shape[1])
    return x.repeat_interleave(group, 1) if group > 1 else x
