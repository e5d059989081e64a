from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import check_number, check_parameter
from fenchel.maps import oscarmax
from fenchel.regularizers._base import Regularizer


class Oscar(Regularizer):
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

    def __init__(self, lam: float | Tensor = 0.01) -> None:
        if not isinstance(lam, Tensor):
            lam = check_number("Oscar", "lam", lam, 0.0, "(0 is Gini's entropy)")
        self.lam = lam

    @property
    def margin(self) -> float:
        """∞ for lam > 0: the lead that is needed grows with the number of classes."""
        largest = float(self.lam.max()) if isinstance(self.lam, Tensor) else self.lam
        return math.inf if largest > 0 else 1.0

    @property
    def _parameter(self) -> Tensor | None:
        return self.lam if isinstance(self.lam, Tensor) else None

    def _aligned(self, name: str, scores: Tensor, dim: int) -> Regularizer:
        if not isinstance(self.lam, Tensor):
            return self
        lam = check_parameter(name, "lam", self.lam, scores, dim, 0.0, "")
        assert isinstance(lam, Tensor)
        return Oscar(lam.to(scores.device).movedim(dim, -1))

    def omega_rows(self, p: Tensor) -> Tensor:
        half = 0.5 * (p.square().sum(-1, keepdim=True) - 1)
        return (half + self.lam * self.slope_rows(p)).squeeze(-1)

    def slope_rows(self, p: Tensor) -> Tensor:
        ranks = torch.arange(p.shape[-1] - 1, -1, -1, device=p.device, dtype=p.dtype)
        return (p.sort(dim=-1, descending=True).values * ranks).sum(-1, keepdim=True)

    def gradient_rows(self, p: Tensor) -> Tensor:
        order = p.sort(dim=-1, descending=True, stable=True).indices
        ranks = torch.arange(p.shape[-1] - 1, -1, -1, device=p.device, dtype=p.dtype)
        return p + self.lam * torch.zeros_like(p).scatter(-1, order, ranks.expand_as(p))

    def predict_rows(self, scores: Tensor) -> Tensor:
        return oscarmax(scores, self.lam)

    def __repr__(self) -> str:
        lam = self.lam
        written = f"<{tuple(lam.shape)}>" if isinstance(lam, Tensor) else f"{lam:g}"
        return f"Oscar(lam={written})"
