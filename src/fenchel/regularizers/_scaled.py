from __future__ import annotations

import math

from torch import Tensor

from fenchel._checks import FenchelError, check_number
from fenchel.regularizers._base import Regularizer


class Scaled(Regularizer):
    r""":math:`\gamma \Omega`: the temperature. Written ``gamma * omega``.

    .. math:: \hat y_{\gamma\Omega}(\theta) = \hat y_\Omega(\theta / \gamma), \qquad
        L_{\gamma\Omega}(\theta; y) = \gamma L_\Omega(\theta / \gamma; y)

    Args:
        omega: any regularizer.
        gamma: a finite number above 0; below 1 the map is sparser.

    Example:
        >>> omega = 2.0 * fy.Gini()
        >>> omega.margin, omega.predict(torch.tensor([1.0, 0.0]))
        (2.0, tensor([0.7500, 0.2500]))
    """

    def __init__(self, omega: Regularizer, gamma: float) -> None:
        if not isinstance(omega, Regularizer):
            raise FenchelError(
                f"Scaled: expected `omega` to be a Regularizer, but got {type(omega).__name__}."
            )
        self.omega = omega
        self.gamma = check_number("Scaled", "gamma", gamma, 0.0, "(and above it)")
        if not 0 < self.gamma < math.inf:
            raise FenchelError(f"Scaled: `gamma` must be a finite number above 0; got {gamma!r}.")

    @property
    def margin(self) -> float:
        """gamma times that of omega."""
        return self.gamma * self.omega.margin

    def _aligned(self, name: str, scores: Tensor, dim: int) -> Regularizer:
        return Scaled(self.omega._aligned(name, scores, dim), self.gamma)

    def check_target_values(self, name: str, target: Tensor) -> None:
        self.omega.check_target_values(name, target)

    def omega_rows(self, p: Tensor) -> Tensor:
        return self.gamma * self.omega.omega_rows(p)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return self.gamma * self.omega.gradient_rows(p)

    def predict_rows(self, scores: Tensor) -> Tensor:
        return self.omega.predict_rows(scores / self.gamma)

    def conjugate_rows(self, scores: Tensor) -> Tensor:
        return self.gamma * self.omega.conjugate_rows(scores / self.gamma)

    def loss_rows(self, scores: Tensor, target: Tensor) -> Tensor:
        return self.gamma * self.omega.loss_rows(scores / self.gamma, target)

    def _bregman(self, y: Tensor, p: Tensor) -> Tensor:
        return self.gamma * self.omega._bregman(y, p)

    def __repr__(self) -> str:
        return f"{self.gamma:g} * {self.omega!r}"
