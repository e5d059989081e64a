"""Quotients that lose all their digits near 0 when computed as they are written.

Each is smooth at 0, takes a series there, and may be differentiated by autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_NEAR = 0.5
_TERMS = 16  # 0.5^16 / 17! is far below float64's last digit


def expm1_over(y: Tensor) -> Tensor:
    """(exp(y) - 1) / y, which is 1 at 0."""
    near, far = _split(y)
    quotient = torch.expm1(far) / far
    return torch.where(
        y.abs() > _NEAR, quotient, _series(near, lambda k: 1 / math.factorial(k + 1))
    )


def expm1_over_slope(y: Tensor) -> Tensor:
    """The derivative of :func:`expm1_over`: (y exp(y) - exp(y) + 1) / y^2, which is 1/2 at 0."""
    near, far = _split(y)
    quotient = (far * far.exp() - torch.expm1(far)) / (far * far)
    series = _series(near, lambda k: (k + 1) / math.factorial(k + 2))
    return torch.where(y.abs() > _NEAR, quotient, series)


def second_remainder(y: Tensor) -> Tensor:
    """(exp(y) - 1 - y) / y^2, which is 1/2 at 0."""
    near, far = _split(y)
    quotient = (torch.expm1(far) - far) / (far * far)
    return torch.where(
        y.abs() > _NEAR, quotient, _series(near, lambda k: 1 / math.factorial(k + 2))
    )


def _split(y: Tensor) -> tuple[Tensor, Tensor]:
    """y where it is near 0, and y where it is far, each harmless where the other is taken."""
    far = y.abs() > _NEAR
    return torch.where(far, 0.0, y), torch.where(far, y, 1.0)


def _series(y: Tensor, coefficient: Callable[[int], float]) -> Tensor:
    total = torch.full_like(y, coefficient(_TERMS))
    for k in range(_TERMS - 1, -1, -1):
        total = coefficient(k) + y * total
    return total
