"""What ``F.cross_entropy`` does around its loss, for the loss of any Ω.

The class axis, indices or probabilities, weights, ignored rows, smoothing, reductions; and costs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import (
    FenchelError,
    check_ignore_index,
    check_number,
)
from fenchel._dtypes import HALF
from fenchel._targets import (
    check_indices,
    check_target,
    is_index,
    is_readable,
    one_hot,
)
from fenchel._warn import warn
from fenchel.kernels import IGNORED
from fenchel.losses.arguments import check_reduction, check_smoothing, check_weight, class_axis
from fenchel.regularizers import Regularizer


def rowwise(
    name: str,
    omega: Regularizer,
    scores: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
    dim: int | None,
    cost: float | Tensor | None,
) -> Tensor:
    """The loss of every row of ``scores``, weighted and reduced."""
    dim = class_axis(name, scores, dim)
    target = check_target(name, target, scores, dim)
    check_reduction(name, reduction)
    smoothing = check_smoothing(name, label_smoothing)
    weight = check_weight(name, weight, scores, dim)
    omega, rows, dtype = omega.on_rows(name, scores, dim)
    counts = None
    if is_index(target):
        ignored = check_ignore_index(name, ignore_index)
        if weight is not None or not _all_count(target, rows.shape[-1], ignored):
            kept = target != ignored
            target = torch.where(kept, target, IGNORED)
            target = check_indices(name, target, rows.shape[-1])
            counts = kept.to(rows.dtype) if weight is None else _weights_of(weight, target, kept)
            warn_if_none_kept(name, kept, reduction)
    else:
        target = target.movedim(dim, -1).to(rows.dtype)
        omega.check_target_values(name, target)
    rows = add_cost(name, rows, target, cost)
    if smoothing > 0 or not is_index(target):
        losses = _against_distribution(omega, rows, target, weight, smoothing)
    else:
        losses = omega.loss_rows(rows, target)
        if weight is not None and counts is not None:
            losses = losses * counts
    return reduce(losses, counts, reduction).to(_result_dtype(scores, dtype))


def _all_count(target: Tensor, n: int, ignored: int | Tensor) -> bool:
    """Whether every row has a class in range and none is ignored, seen in one look.

    Most targets are such, and a small loss costs as many steps as it takes.
    """
    if not is_readable(target) or target.numel() == 0:
        return False
    low, high = (int(value) for value in target.aminmax())
    return low >= 0 and high < n and not bool(low <= ignored <= high)


def _weights_of(weight: Tensor, target: Tensor, kept: Tensor) -> Tensor:
    known = torch.where(kept, target, 0)
    # As an index, a target of a single row would be read as a number, which torch.func refuses.
    return torch.where(kept, weight.gather(0, known.reshape(-1)).reshape(known.shape), 0.0)


def _against_distribution(
    omega: Regularizer, rows: Tensor, target: Tensor, weight: Tensor | None, smoothing: float
) -> Tensor:
    """The weighted loss of rows against probabilities, or against smoothed classes."""
    ignored = None
    if is_index(target):
        ignored = target == IGNORED
        rows = rows.masked_fill(ignored.unsqueeze(-1), 0.0)
        target = one_hot(target, rows)
    if smoothing > 0:
        open_classes = (rows.detach() != -torch.inf).to(rows.dtype)
        spread = open_classes / open_classes.sum(-1, keepdim=True).clamp(min=1)
        target = (1 - smoothing) * target + smoothing * spread
    if weight is None:
        losses = omega.loss_rows(rows, target)
    else:
        target = target * weight
        total = target.sum(-1, keepdim=True)
        target = target / torch.where(total == 0, 1.0, total)
        losses = total.squeeze(-1) * omega.loss_rows(rows, target)
    return losses if ignored is None else losses.masked_fill(ignored, 0.0)


def reduce(losses: Tensor, counts: Tensor | None, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if counts is None else losses.sum() / counts.sum()


def warn_if_none_kept(name: str, kept: Tensor, reduction: str) -> None:
    if reduction == "mean" and is_readable(kept) and kept.numel() > 0 and not bool(kept.any()):
        warn(
            f"{name}: every target is `ignore_index`, so the mean is NaN; skip the batch or use "
            "reduction='sum'.",
        )


def _result_dtype(scores: Tensor, dtype: torch.dtype) -> torch.dtype:
    """That of the scores; float32 for half precision under autocast, as ``F.cross_entropy``."""
    if dtype in HALF and torch.is_autocast_enabled(scores.device.type):
        return torch.float32
    return dtype


def add_cost(name: str, rows: Tensor, target: Tensor, cost: Any) -> Tensor:
    r"""``rows`` (*rows, n) with what each class costs given the target.

    A cost-sensitive loss is :math:`L_\Omega(\theta + c_y; y)`, with costs :math:`c_y` given y.
    """
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
