"""Entmax as the list of its nonzeros, in plain torch: any device, by way of the dense map."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter, widen
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._entmax import entmax


@implements("entmax.sparse", REFERENCE)
def sparse_entmax(x: Tensor, alpha: Parameter) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Support of entmax along the last axis: (indices, values, sizes, threshold), row by row."""
    p = entmax(x, alpha, -1)
    inside = p != 0
    return inside.nonzero()[:, -1].clone(), p[inside], inside.sum(-1), _threshold(x, p, alpha)


def _threshold(x: Tensor, p: Tensor, alpha: Parameter) -> Tensor:
    """The score above which an entry is in the support, from the largest one: it is the safest."""
    best, peak = widen(x.amax(-1)), widen(p.amax(-1))
    if not isinstance(alpha, Tensor):
        if alpha <= 1:  # no score is too low
            return torch.full_like(best, -math.inf)
        if alpha == math.inf:
            return best
        return best - ((alpha - 1) * peak.log()).exp() / (alpha - 1)
    a = alpha.squeeze(-1).to(best) - 1
    below = torch.where(a == math.inf, 0.0, (a * peak.log()).exp() / a)
    return torch.where((a > -1) & (a <= 0), -math.inf, best - below)
