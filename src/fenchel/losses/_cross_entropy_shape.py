"""What ``F.cross_entropy`` does around its loss, for the loss of any Ω.

The class axis, indices or probabilities, weights, ignored rows, smoothing, reductions; and costs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import (
    FenchelError,
    check_dim,
    check_ignore_index,
    check_number,
    check_scores,
)
from fenchel._targets import (
    check_indices,
    check_target,
    is_index,
    is_readable,
    one_hot,
)
from fenchel._warn import warn
from fenchel.kernels import IGNORED
from fenchel.losses._cost import add_cost
from fenchel.regularizers import Regularizer

REDUCTIONS = ("mean", "sum", "none")


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


def class_axis(name: str, scores: Any, dim: int | None) -> int:
    """The checked axis of the classes: 1, or 0 for 1-d scores, unless told."""
    if dim is None:
        dim = 1 if isinstance(scores, Tensor) and scores.dim() > 1 else 0
    return check_scores(name, scores, check_dim(name, dim))


def check_reduction(name: str, reduction: Any) -> None:
    if reduction not in REDUCTIONS:
        raise FenchelError(
            f"{name}: expected `reduction` to be 'mean', 'sum' or 'none', but got {reduction!r}."
        )


def check_smoothing(name: str, value: Any) -> float:
    smoothing = check_number(name, "label_smoothing", value, 0.0, "(and at most 1)")
    if smoothing > 1:
        raise FenchelError(f"{name}: `label_smoothing` must be in [0, 1]; got {value!r}.")
    return smoothing


def check_weight(
    name: str, weight: Any, scores: Tensor, dim: int, label: str = "weight"
) -> Tensor | None:
    """Check the numbers of the classes; half precision comes back as float32."""
    if weight is None:
        return None
    classes = scores.shape[dim]
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        got = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise FenchelError(
            f"{name}: expected `{label}` to be a floating tensor of one number a class, but got "
            f"{got}."
        )
    if weight.shape != (classes,) or weight.device != scores.device:
        raise FenchelError(
            f"{name}: expected `{label}` of shape ({classes},) on {scores.device}, but got "
            f"{tuple(weight.shape)} on {weight.device}."
        )
    return weight.float() if weight.dtype.itemsize == 2 else weight


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
    if dtype.itemsize == 2 and torch.is_autocast_enabled(scores.device.type):
        return torch.float32
    return dtype
