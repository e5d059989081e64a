"""A regularizer as the solvers see it: map, conjugate and Ω of the rows of a NumPy array."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.estimators._sklearn import np
from fenchel.regularizers import (
    Regularizer,
    Scaled,
    Squared,
    StructuredRegularizer,
    Tsallis,
    Zero,
)
from fenchel.regularizers.registry import REGULARIZERS, as_regularizer

#: The names an estimator takes: every Ω on the simplex whose loss can be minimized.
NAMES = tuple(sorted(REGULARIZERS.keys() - {"squared", "zero"}))


def choose_omega(name: str, omega: Any, alpha: Any) -> Regularizer:
    """The Ω of an estimator's ``omega`` and ``alpha``; one that cannot serve is refused."""
    if isinstance(omega, str):
        if omega not in NAMES:
            known = ", ".join(repr(key) for key in NAMES)
            raise FenchelError(
                f"{name}: expected `omega` to be one of {known}, or a Regularizer such as "
                f"fy.Tsallis(1.5), but got {omega!r}."
            )
        chosen: Regularizer = Tsallis(alpha) if omega == "tsallis" else as_regularizer(name, omega)
    else:
        chosen = as_regularizer(name, omega)
    base = chosen
    while isinstance(base, Scaled):
        base = base.omega
    if isinstance(base, Squared | StructuredRegularizer):
        raise FenchelError(
            f"{name}: expected `omega` on the simplex, such as fy.Tsallis(1.5), but got "
            f"{chosen!r}, whose predictions are not distributions."
        )
    if isinstance(base, Tsallis) and isinstance(base.alpha, Tensor):
        raise FenchelError(
            f"{name}: expected `omega` with a number as alpha, but got a tensor; use "
            "`float(alpha)`."
        )
    if isinstance(base, Zero) or (isinstance(base, Tsallis) and base.alpha == math.inf):
        raise FenchelError(
            f"{name}: expected `omega` with a smooth loss, but that of {chosen!r} (the "
            "perceptron's) is minimal at zero weights; use fy.Gini() or a finite alpha."
        )
    return chosen


class Oracle:
    """Ω, its map and its conjugate on NumPy arrays (rows, classes) of dtype float64.

    Tsallis's family has one more formula. With :math:`m` the best class of a row,

    .. math:: \\Omega^*(\\theta) = \\theta_m + (1 - 1/\\alpha) (\\langle p, \\theta \\rangle -
        \\theta_m) - \\log_a(p_m) / \\alpha, \\qquad a = \\alpha - 1,

    because :math:`\\log_a p_j` is :math:`\\theta_j` up to a constant on the support.
    """

    def __init__(self, omega: Regularizer) -> None:
        gamma, base = 1.0, omega
        while isinstance(base, Scaled):
            gamma, base = gamma * base.gamma, base.omega
        self.regularizer = omega
        self.gamma = gamma
        #: α of a multiple of Tsallis's entropy, None for every other Ω.
        self.alpha: float | None = None
        if isinstance(base, Tsallis):
            assert not isinstance(base.alpha, Tensor)
            self.alpha = base.alpha

    @property
    def is_sparse(self) -> bool:
        """Whether the map has exact zeros: Ω has a margin, or a finite slope at a probability of 0.

        Oscar's margin depends on the number of classes, so that it has none for all of them.
        """
        at_corner = self.slope(np.array([[1.0, 0.0]]))
        return math.isfinite(self.regularizer.margin) or bool(np.isfinite(at_corner).all())

    @torch.no_grad()
    def predict(self, scores: Any) -> Any:
        """The map of every row, in new memory."""
        tensor = torch.from_numpy(scores)
        if self.alpha == 1.0 and self.gamma == 1.0:
            return torch.softmax(tensor, -1).numpy()
        return self.regularizer.predict(tensor).numpy()

    @torch.no_grad()
    def omega(self, p: Any) -> Any:
        """Ω of every row."""
        return self.regularizer(torch.from_numpy(p)).numpy()

    def slope(self, p: Any) -> Any:
        """∇Ω of every row, up to a constant a row; infinite at the boundary for some Ω."""
        with torch.no_grad():
            return self.regularizer.gradient_rows(torch.from_numpy(p)).numpy()

    def conjugate(self, scores: Any, p: Any) -> tuple[Any, Any]:
        """(the largest score, Ω*(θ) minus it) of every row, with p the map of the scores."""
        rows = np.arange(len(scores))
        best = scores.argmax(1)
        top = scores[rows, best]
        if self.alpha == 1.0:
            return top, -self.gamma * np.log(p[rows, best])
        depth = np.einsum("ij,ij->i", p, scores) - top
        if self.alpha is None:
            return top, depth - self.omega(p)
        a = self.alpha - 1
        level = np.expm1(a * np.log(p[rows, best])) / a
        return top, (1 - 1 / self.alpha) * depth - self.gamma * level / self.alpha
