"""The squared norm with a penalty that makes entries equal: of neighbours, or of all pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel.maps.declaration import MAPS
from fenchel.regularizers._base import Regularizer
from fenchel.regularizers.of_map import MapRegularizer
from fenchel.regularizers.registry import listed

__all__ = ["FusedLasso", "Oscar"]


class _Grouping(MapRegularizer):
    """What both share: half the squared norm, and a penalty that looks at other classes."""

    lam: float | Tensor
    #: Where a row is not masked; None if that is not known.
    _open: Tensor | None = None

    def among(self, scores: Tensor) -> Regularizer:
        # A class that is masked is no neighbour, and is in no pair.
        omega = type(self)(self.lam)
        omega._open = scores.detach() > -math.inf
        return omega

    def omega_rows(self, p: Tensor) -> Tensor:
        half = 0.5 * (p.square().sum(-1, keepdim=True) - 1)
        return (half + self.lam * self.slope_rows(p)).squeeze(-1)


@listed
class FusedLasso(_Grouping):
    r"""The squared norm and the total variation: fusedmax and its losses.

    .. math:: \Omega(p) = \tfrac{1}{2} (\|p\|^2 - 1) + \lambda \sum_i |p_{i+1} - p_i|

    The map is :func:`fenchel.fusedmax`. The order of the classes counts, and at a vertex Ω is not 0
    but λ times the jumps there. The margin is that of the worst place: 1 + 3 λ.

    Args:
        lam: weight of the total variation, a number of at least 0, or a tensor that broadcasts
            against the scores with size 1 along ``dim``, learnable.

    Example:
        >>> fy.FusedLasso(0.1).predict(torch.tensor([0.1, 1.0, 0.9, 1.1, -1.0]))
        tensor([0.0000, 0.3333, 0.3333, 0.3333, 0.0000])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """

    map = MAPS["fusedmax"]

    def __init__(self, lam: float | Tensor = 0.1) -> None:
        super().__init__(lam)

    def slope_rows(self, p: Tensor) -> Tensor:
        jumps = p.diff(dim=-1).abs()
        if self._open is not None:
            jumps = torch.where(self._open[..., 1:] & self._open[..., :-1], jumps, 0.0)
        return jumps.sum(-1, keepdim=True)

    def gradient_rows(self, p: Tensor) -> Tensor:
        side = p.diff(dim=-1).sign()
        jumps = torch.nn.functional.pad(side, (1, 0)) - torch.nn.functional.pad(side, (0, 1))
        return p + self.lam * jumps


@listed
class Oscar(_Grouping):
    r"""The squared norm and pairwise maxima: oscarmax and its losses.

    .. math:: \Omega(p) = \tfrac{1}{2} (\|p\|^2 - 1) + \lambda \sum_{i < j} \max(p_i, p_j)

    The map is :func:`fenchel.oscarmax`. At a vertex of n classes Ω is λ (n − 1), and the loss is 0
    from a lead of 1 + λ n / 2 on: no margin holds for every number of classes.

    Args:
        lam: weight of the pairwise maxima, a number of at least 0, or a tensor that broadcasts
            against the scores with size 1 along ``dim``, learnable.

    Example:
        >>> fy.Oscar(0.1).predict(torch.tensor([0.2, 0.1, -0.5]))
        tensor([0.5000, 0.5000, 0.0000])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """

    map = MAPS["oscarmax"]

    def __init__(self, lam: float | Tensor = 0.01) -> None:
        super().__init__(lam)

    def slope_rows(self, p: Tensor) -> Tensor:
        ranks = torch.arange(p.shape[-1] - 1, -1, -1, device=p.device, dtype=p.dtype)
        if self._open is not None:  # masked classes come last
            ranks = (ranks - (~self._open).sum(-1, keepdim=True)).clamp(min=0)
        return (p.sort(dim=-1, descending=True).values * ranks).sum(-1, keepdim=True)

    def gradient_rows(self, p: Tensor) -> Tensor:
        order = p.sort(dim=-1, descending=True, stable=True).indices
        ranks = torch.arange(p.shape[-1] - 1, -1, -1, device=p.device, dtype=p.dtype)
        return p + self.lam * torch.zeros_like(p).scatter(-1, order, ranks.expand_as(p))
