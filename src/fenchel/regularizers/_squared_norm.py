from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import check_number
from fenchel.maps import sq_pnorm_max
from fenchel.regularizers._base import Regularizer
from fenchel.regularizers._norm_curve import log_norm, norm_gradient


class SquaredNorm(Regularizer):
    r"""The squared norm entropies: sq-pnorm-max and its losses.

    .. math:: \Omega(p) = \tfrac{1}{2} (\|p\|_q^2 - 1)

    The map is :func:`fenchel.sq_pnorm_max`; the margin is 1 for every q > 1; q = 2 is
    :class:`Gini`.

    Args:
        q: a number in [1, ∞].

    Example:
        >>> fy.SquaredNorm(2).predict(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.2500, 0.7500])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """

    def __init__(self, q: float = 1.5) -> None:
        self.q = check_number("SquaredNorm", "q", q, 1.0, "(2 is Gini's entropy)")

    @property
    def margin(self) -> float:
        """1; 0 at q = 1, where there is no entropy."""
        return 1.0 if self.q > 1 else 0.0

    def omega_rows(self, p: Tensor) -> Tensor:
        return 0.5 * torch.expm1(2 * log_norm(p, self.q)).squeeze(-1)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return log_norm(p, self.q).exp() * norm_gradient(p, self.q)

    def predict_rows(self, scores: Tensor) -> Tensor:
        return sq_pnorm_max(scores, self.q)

    def __repr__(self) -> str:
        return f"SquaredNorm(q={self.q:g})"
