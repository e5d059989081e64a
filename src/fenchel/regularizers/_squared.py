from __future__ import annotations

import math

from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.regularizers._base import Regularizer


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
