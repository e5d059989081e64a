from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import check_number, check_parameter
from fenchel.maps import fusedmax
from fenchel.regularizers._base import Regularizer


class FusedLasso(Regularizer):
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

    def __init__(self, lam: float | Tensor = 0.1) -> None:
        if not isinstance(lam, Tensor):
            lam = check_number("FusedLasso", "lam", lam, 0.0, "(0 is Gini's entropy)")
        self.lam = lam

    @property
    def margin(self) -> float:
        """1 + 3 lam, which the middle one of three classes needs."""
        return 1 + 3 * float(self.lam.max() if isinstance(self.lam, Tensor) else self.lam)

    @property
    def _parameter(self) -> Tensor | None:
        return self.lam if isinstance(self.lam, Tensor) else None

    def _aligned(self, name: str, scores: Tensor, dim: int) -> Regularizer:
        if not isinstance(self.lam, Tensor):
            return self
        lam = check_parameter(name, "lam", self.lam, scores, dim, 0.0, "")
        assert isinstance(lam, Tensor)
        return FusedLasso(lam.to(scores.device).movedim(dim, -1))

    def omega_rows(self, p: Tensor) -> Tensor:
        half = 0.5 * (p.square().sum(-1, keepdim=True) - 1)
        return (half + self.lam * self.slope_rows(p)).squeeze(-1)

    def slope_rows(self, p: Tensor) -> Tensor:
        return p.diff(dim=-1).abs().sum(-1, keepdim=True)

    def gradient_rows(self, p: Tensor) -> Tensor:
        side = p.diff(dim=-1).sign()
        jumps = torch.nn.functional.pad(side, (1, 0)) - torch.nn.functional.pad(side, (0, 1))
        return p + self.lam * jumps

    def predict_rows(self, scores: Tensor) -> Tensor:
        return fusedmax(scores, self.lam)

    def __repr__(self) -> str:
        lam = self.lam
        written = f"<{tuple(lam.shape)}>" if isinstance(lam, Tensor) else f"{lam:g}"
        return f"FusedLasso(lam={written})"
