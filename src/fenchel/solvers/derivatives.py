"""Gradients and Hessians of a function of rows, up to the boundary of the simplex.

A function may have an infinite slope or curvature where a probability is 0 (every entropy whose map
is sparser than softmax has an infinite second or third derivative there), and torch makes NaN of
``0 * inf``. Here every function is seen at ``max(p, FLOOR)``: what multiplies a zero is then large
but finite, and no value that float64 can hold is changed by it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: (*rows, n) -> (*rows), each row for itself.
RowFunction = Callable[[Tensor], Tensor]

#: Its fourth inverse power, a third derivative of the steepest entropies, is still a float64.
FLOOR = 1e-40


def lifted(p: Tensor) -> Tensor:
    """``max(p, FLOOR)`` with the derivative of the identity."""
    return p + (FLOOR - p).clamp_min(0.0).detach()


def gradient(function: RowFunction, p: Tensor) -> Tensor:
    """The gradient of each row, differentiable, shape (rows, n)."""
    return torch.func.grad(_total(function))(lifted(p))


def hessian(function: RowFunction, p: Tensor, entries: Tensor) -> Tensor:
    """The Hessian of each row in some of its entries, differentiable.

    Args:
        function: twice differentiable.
        p: shape (rows, n).
        entries: positions in a row, shape (rows, m).

    Returns:
        Shape (rows, m, m).
    """
    # Reverse over reverse: every op that torch can differentiate twice has it, unlike forward mode.
    pullback = torch.func.vjp(torch.func.grad(_total(function)), lifted(p))[1]
    (rows, n), m = p.shape, entries.shape[-1]
    basis = torch.zeros(m, rows, n, dtype=p.dtype, device=p.device)
    basis = basis.scatter(-1, entries.mT.unsqueeze(-1), 1.0)
    (products,) = torch.func.vmap(pullback)(basis)
    return products.gather(-1, entries.expand(m, rows, m)).movedim(0, 1)


def _total(function: RowFunction) -> Callable[[Tensor], Tensor]:
    # Rows do not mix, so that the gradient of the sum holds the gradient of each.
    return lambda p: function(p).sum()
