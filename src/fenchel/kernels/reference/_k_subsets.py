"""Subsets in plain torch: the oracle, and the log-partition."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._guarded import finite, log_sum_exp
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._smoothed import register_smoothed


@implements("oracle.k_subsets", REFERENCE)
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
    top = _top(scores, sizes)
    if k == 1:
        inside = torch.arange(scores.shape[1]) < sizes
        # Less the top, for its gradient's sake: exp(score - log-partition) would round large ones.
        below = torch.where(inside, scores, -math.inf) - top
        return torch.logsumexp(below, 1) + top.squeeze(1)
    tables, _ = k_subsets_tables(scores, k, sizes)
    return tables[-1][:, k] + k * top.squeeze(1)


register_smoothed(
    "k_subsets",
    lambda scores, layout, sizes, *_: k_subsets_log_partition(scores, layout[1], sizes),
    alone=True,
)


def k_subsets_tables(scores: Tensor, k: int, sizes: Tensor) -> tuple[list[Tensor], Tensor]:
    """For each i, logs of the sums over subsets of 0 to k of the first i items (instances, k + 1).

    Scores count from their maximum; they are the second result.
    """
    count, n = scores.shape
    top = _top(scores, sizes)
    scores = torch.where(torch.arange(n) < sizes, scores, -math.inf) - top
    known = scores.new_full((count, k + 1), -math.inf)
    known[:, 0] = 0.0
    tables = [known]
    for item in scores.unbind(1):
        without = known[:, 1:]
        both = torch.stack([without, known[:, :-1] + item.unsqueeze(1)], -1)
        known = torch.cat([known[:, :1], log_sum_exp(both)], 1)
        tables.append(known)
    return tables, scores


def _top(scores: Tensor, sizes: Tensor) -> Tensor:
    inside = torch.arange(scores.shape[1]) < sizes
    return finite(torch.where(inside, scores, -math.inf).detach().amax(1, keepdim=True))
