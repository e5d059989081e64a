"""The oracle of subsets, in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def k_subsets_best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The k best of the first ``sizes`` items, those of lower index on ties."""
    n, k = layout
    inside = torch.arange(n) < sizes
    known = torch.where(inside, scores, -math.inf)
    top = known.sort(dim=-1, descending=True, stable=True)
    parts = top.indices[:, :k].sort(dim=-1).values
    finite = (top.values[:, :k] > -math.inf).all(-1, keepdim=True)
    return torch.where(finite, parts, -2 + (torch.arange(parts.shape[1]) > 0).long())
