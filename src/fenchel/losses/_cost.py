r"""Cost-sensitive losses: :math:`L_\Omega(\theta + c_y; y)`, with costs :math:`c_y` given y."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_number
from fenchel._targets import is_index, one_hot
from fenchel.kernels import IGNORED


def add_cost(name: str, rows: Tensor, target: Tensor, cost: Any) -> Tensor:
    """``rows`` (*rows, n) with what each class costs given the target."""
    if cost is None:
        return rows
    n = rows.shape[-1]
    if not isinstance(cost, Tensor):
        cost = check_number(name, "cost", cost, 0.0, "", "a number or a torch.Tensor")
        return rows + cost * _wrong(rows, target)
    if not cost.is_floating_point() or cost.device != rows.device:
        raise FenchelError(
            f"{name}: expected `cost` of a floating dtype on {rows.device}, but got {cost.dtype} "
            f"on {cost.device}."
        )
    if cost.shape == (n, n):
        cost = cost.to(rows.dtype)
        return rows + (
            cost[torch.where(target == IGNORED, 0, target)] if is_index(target) else target @ cost
        )
    if cost.shape in ((n,), ()):
        return rows + cost.to(rows.dtype) * _wrong(rows, target)
    raise FenchelError(
        f"{name}: expected `cost` of shape ({n}, {n}), with cost[y, j] for predicting class j when "
        f"y is right, or ({n},), but got {tuple(cost.shape)}."
    )


def _wrong(rows: Tensor, target: Tensor) -> Tensor:
    """1 minus the target: 1 for a wrong class, 0 for the right one."""
    right = one_hot(target, rows) if is_index(target) else target
    return torch.ones_like(right) - right
