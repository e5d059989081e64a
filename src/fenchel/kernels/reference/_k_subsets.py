"""Subsets in plain torch: the oracle, and the log-partition."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel.kernels.reference._guarded import finite, log_sum_exp


def k_subsets_best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The k best of the first ``sizes`` items, those of lower index on ties."""
    n, k = layout
    inside = torch.arange(n) < sizes
    known = torch.where(inside, scores, -math.inf)
    top = known.sort(dim=-1, descending=True, stable=True)
    parts = top.indices[:, :k].sort(dim=-1).values
    finite = (top.values[:, :k] > -math.inf).all(-1, keepdim=True)
    return torch.where(finite, parts, -2 + (torch.arange(parts.shape[1]) > 0).long())


def k_subsets_log_partition(scores: Tensor, k: int, sizes: Tensor) -> Tensor:
    """log of the sum of exp(score) over all subsets of k items (instances), differentiable.

    The elementary symmetric polynomial of degree k, item by item: a subset of j of the first i
    items has the i-th, or not. In logarithms, so nothing overflows.
    """
    count, n = scores.shape
    scores = torch.where(torch.arange(n) < sizes, scores, -math.inf)
    if k == 1:
        return torch.logsumexp(scores, 1)
    top = finite(scores.detach().amax(1, keepdim=True))
    known = scores.new_full((count, k + 1), -math.inf)
    known[:, 0] = 0.0
    for item in (scores - top).unbind(1):
        without = known[:, 1:]
        both = torch.stack([without, known[:, :-1] + item.unsqueeze(1)], -1)
        known = torch.cat([known[:, :1], log_sum_exp(both)], 1)
    return known[:, k] + k * top.squeeze(1)
