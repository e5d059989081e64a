"""Norms as regularizers: of the simplex, squared or not, and of the whole space."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.maps.declaration import MAPS
from fenchel.regularizers._base import Regularizer
from fenchel.regularizers.of_map import MapRegularizer
from fenchel.regularizers.registry import listed

__all__ = ["Norm", "Squared", "SquaredNorm"]


@listed
class Norm(MapRegularizer):
    r"""The norm entropies: normmax and its losses.

    .. math:: \Omega(p) = \|p\|_q - 1

    The map is :func:`fenchel.normmax`; the margin is 1 for every q > 1. At q = ∞ the entropy is the
    Berger-Parker index, 1 minus the largest probability; at q = 1 it vanishes on the simplex.

    Args:
        q: a number in [1, ∞], or a tensor that broadcasts against the scores with size 1 along
            ``dim``, learnable. A tensor's values are not checked.

    Example:
        >>> omega = fy.Norm(2)
        >>> omega.predict(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3110, 0.6890])
        >>> omega.margin
        1.0

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """

    map = MAPS["normmax"]
    q: float | Tensor

    def __init__(self, q: float | Tensor = 2.0) -> None:
        super().__init__(q)

    def omega_rows(self, p: Tensor) -> Tensor:
        return torch.expm1(log_norm(p, self.q)).squeeze(-1)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return norm_gradient(p, self.q)

    def slope_rows(self, p: Tensor) -> Tensor:
        return log_norm(p, self.q).exp() * log_norm_slope(p, self.q)


@listed
class SquaredNorm(MapRegularizer):
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

    map = MAPS["sq_pnorm_max"]
    q: float

    def __init__(self, q: float = 1.5) -> None:
        super().__init__(q)

    def omega_rows(self, p: Tensor) -> Tensor:
        return 0.5 * torch.expm1(2 * log_norm(p, self.q)).squeeze(-1)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return log_norm(p, self.q).exp() * norm_gradient(p, self.q)


@listed
class Squared(Regularizer):
    r"""The squared norm on all of :math:`\mathbb{R}^d`: the identity and the squared loss.

    .. math:: \Omega(\mu) = \tfrac{1}{2} \|\mu\|^2, \qquad
        L(\theta; y) = \tfrac{1}{2} \|y - \theta\|^2

    Not a distribution: :class:`Gini` is this on the simplex. There is no margin. Targets may be any
    vectors: they need not sum to 1.

    Example:
        >>> fy.Squared().loss(torch.tensor([1.0, 1.0]), torch.tensor(1))
        tensor(0.5000)
    """

    @property
    def margin(self) -> float:
        """∞: the loss is 0 at one point only."""
        return math.inf

    def predict(self, scores: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
        """The scores themselves; there is no mass that a ``mask`` could keep away."""
        if mask is not None:
            raise FenchelError(
                "Squared.predict: expected no `mask`, because the domain is not the simplex; use "
                "fy.Gini()."
            )
        return super().predict(scores, dim)

    def omega_rows(self, p: Tensor) -> Tensor:
        return 0.5 * p.square().sum(-1)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return p

    def predict_rows(self, scores: Tensor) -> Tensor:
        return scores.clone()

    def check_target_values(self, name: str, target: Tensor) -> None:
        """Nothing to check: every vector is a target."""

    def _divergence(self, scores: Tensor, p: Tensor, target: Tensor) -> Tensor:
        return 0.5 * (p - target).square().sum(-1)

    def _bregman(self, y: Tensor, p: Tensor) -> Tensor:
        return 0.5 * (y - p).square().sum(-1)

    def _conjugate_value(self, scores: Tensor, p: Tensor) -> Tensor:
        return 0.5 * scores.square().sum(-1)

    def __repr__(self) -> str:
        return "Squared()"


# The q-norm of a distribution, in logarithms: 1 at a vertex, small nowhere, for q up to ∞.


def log_norm(p: Tensor, q: float | Tensor) -> Tensor:
    """log ||p||_q along the last axis, kept; -inf for a row of zeros."""
    peak = p.abs().amax(-1, keepdim=True)
    if not isinstance(q, Tensor) and q == math.inf:
        return peak.log()
    safe = torch.where(peak == 0, 1.0, peak)
    # Relative to the largest entry the sum lies in [1, n], and the logarithm keeps its digits.
    return (p / safe).pow(q).sum(-1, keepdim=True).log() / q + peak.log()


def log_norm_slope(p: Tensor, q: float | Tensor) -> Tensor:
    """The derivative of log ||p||_q in q at fixed p, along the last axis, kept."""
    logs = torch.where(p == 0, 1.0, p).log()
    weights = torch.where(p == 0, 0.0, (q * (logs - log_norm(p, q))).exp())
    return ((weights * logs).sum(-1, keepdim=True) - log_norm(p, q)) / q


def norm_gradient(p: Tensor, q: float | Tensor) -> Tensor:
    """The gradient of ||p||_q; at q = ∞ the subgradient that ties share."""
    if not isinstance(q, Tensor) and q == math.inf:
        best = (p == p.amax(-1, keepdim=True)).to(p.dtype)
        return best / best.sum(-1, keepdim=True)
    return (p / log_norm(p, q).exp()).pow(q - 1)  # 0^0 = 1, which is right at q = 1
