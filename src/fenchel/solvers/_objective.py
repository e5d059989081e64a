from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel.maps import sparsemax
from fenchel.solvers.derivatives import RowFunction, gradient


@dataclass(frozen=True)
class Objective:
    r""":math:`\langle \theta, p \rangle - \Omega(p)` on the simplex, one problem a row.

    Args:
        omega: convex, (rows, n) -> (rows).
        scores: float64, shape (rows, n), at least one number in each row, the rest ``-inf``.
    """

    omega: RowFunction
    scores: Tensor

    def slope(self, p: Tensor) -> Tensor:
        """The gradient at ``p``, -inf where an entry is masked."""
        return self.scores - gradient(self.omega, p)

    def gap(self, p: Tensor, slope: Tensor) -> Tensor:
        """The Frank-Wolfe gap, shape (rows); ∞ where it is not a number."""
        below = slope.amax(-1, keepdim=True) - slope
        # <top - slope, p>, not top - <slope, p>: every term is at least 0, nothing cancels.
        gap = torch.where(p == 0, 0.0, p * below).sum(-1)
        return torch.where(gap.isnan(), math.inf, gap)

    def is_within(self, tol: float, gap: Tensor, p: Tensor, slope: Tensor) -> Tensor:
        """Whether a gap is at most ``tol``, relative to the slopes that it was rounded with."""
        size = torch.where(p == 0, 0.0, p * slope.abs()).sum(-1)
        return gap <= tol * (1 + size)

    def project(self, x: Tensor) -> Tensor:
        """The nearest point of the simplex without mass on masked entries."""
        return sparsemax(torch.where(self.scores == -math.inf, -math.inf, x))

    def centre(self) -> Tensor:
        """The uniform distribution over unmasked entries."""
        is_open = (self.scores != -math.inf).to(self.scores.dtype)
        return is_open / is_open.sum(-1, keepdim=True)

    def at(self, rows: Tensor | slice) -> Objective:
        """The problems of some rows."""
        return Objective(self.omega, self.scores[rows])
