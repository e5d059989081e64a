"""Maps that fuse entries into groups, in plain torch: any device, rows in parallel.

Both find groups by merging neighbours, which is order-independent: along the path of the penalty
for the fused lasso, whose groups never split as it grows, and until means descend for OSCAR.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter, widen
from fenchel._guarded import finite_max
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._entmax import entmax


@implements("fusedmax", REFERENCE)
def fusedmax(x: Tensor, lam: Parameter, with_slope: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """p, the group of each entry with mass (else -1), how its level moves with lam; last axis."""
    scores, open_, lam, scale = _prepare(x, lam)
    linked = open_[..., 1:] & open_[..., :-1]
    joined = linked & (scores.diff(dim=-1) == 0) & (lam > 0)
    spent = torch.zeros_like(lam)
    level, slope = scores, _pull(scores, _numbers(joined), linked, joined)
    # Two that meet at the same time as others may miss each other by a rounding.
    touching = 64 * torch.finfo(scores.dtype).eps * (1 - scores.amin(-1, keepdim=True))
    for _ in range(2 * x.shape[-1]):
        group = _numbers(joined)
        # A row that is done keeps its slopes: where groups met just then, rounding would turn them.
        slope = torch.where(spent < lam, _pull(level, group, linked, joined), slope)
        gap, closing = -level.diff(dim=-1), slope.diff(dim=-1)
        # Neighbours that approach each other meet after gap / closing.
        meets = linked & ~joined & (gap * closing > 0)
        times = torch.where(meets, gap / torch.where(meets, closing, 1.0), math.inf)
        soonest = _least(times, like=lam)
        last = soonest >= lam - spent  # nothing meets any more
        step = torch.where(last, lam - spent, soonest)
        level = level + step * slope
        spent = torch.where(last, lam, spent + step)  # to the last bit: a sum could fall short
        arrived = meets & (times <= step)
        arrived = (arrived | (linked & (level.diff(dim=-1).abs() <= touching))) & ~joined
        arrived = arrived & (spent < lam)
        if not bool(arrived.any()):
            break
        joined = joined | arrived
    return _finish(x, _means(scores, group) + lam * slope, group, slope, open_, scale)


@implements("oscarmax", REFERENCE)
def oscarmax(x: Tensor, lam: Parameter, with_slope: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """p, the group of each entry with mass (else -1), how its level moves with lam; last axis."""
    scores, open_, lam, scale = _prepare(x, lam)
    ranked, order = torch.where(open_, scores, -math.inf).sort(dim=-1, descending=True, stable=True)
    count = open_.sum(-1, keepdim=True)
    rank = torch.arange(x.shape[-1], device=x.device)
    inside = rank < count
    # From their mean, which the projection takes away again: large ones would cost digits.
    penalty = torch.where(inside, (count - 1).to(scores.dtype) / 2 - rank, 0.0)
    ranked = torch.where(inside, ranked, 0.0)
    linked = inside[..., 1:]
    group = pooled(ranked, penalty, lam, linked)
    slope = -_means(penalty, group)
    level = _means(ranked, group) + lam * slope
    back = order.argsort(-1)
    level, slope, group = (values.gather(-1, back) for values in (level, slope, group))
    return _finish(x, level, group, slope, open_, scale)


def pooled(ranked: Tensor, penalty: Tensor, lam: Parameter, linked: Tensor) -> Tensor:
    """Groups of neighbours that make the means of ``ranked - lam * penalty`` descend."""
    joined = torch.zeros_like(linked)
    for _ in range(ranked.shape[-1]):
        group = _numbers(joined)
        level = _means(ranked, group) - lam * _means(penalty, group)
        rising = linked & ~joined & (level.diff(dim=-1) >= 0)
        if not bool(rising.any()):
            break
        joined = joined | rising
    return _numbers(joined)


def _prepare(x: Tensor, lam: Parameter) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores below their maximum in float64, which are open, lam as a column, and their scale.

    Groups of scores near the largest double are found on a smaller scale, where no sum overflows.
    """
    wide = widen(x)
    open_ = x > -math.inf
    top = finite_max(wide, -1)
    column = torch.as_tensor(lam, dtype=wide.dtype, device=x.device)
    column = (
        column.expand(*x.shape[:-1], 1)
        if column.dim()
        else column.reshape((1,) * x.dim()).expand(*x.shape[:-1], 1)
    )
    column = torch.where(column == math.inf, torch.finfo(wide.dtype).max, column)
    huge = (top.abs() >= 1e300) | (column >= 1e300)
    scale = torch.where(huge, 2.0**-64, torch.ones_like(top))
    scores = torch.where(open_, scale * wide - scale * top, 0.0)
    column = scale * column
    # More than this fuses everything already, and would cost digits.
    most = (1 - scores.amin(-1, keepdim=True)) * x.shape[-1]
    return scores, open_, torch.where(column > most, most, column), scale


def _least(times: Tensor, like: Tensor) -> Tensor:
    if times.shape[-1] == 0:  # a row of one entry has no neighbours
        return torch.full_like(like, math.inf)
    return times.amin(-1, keepdim=True)


def _numbers(joined: Tensor) -> Tensor:
    """The number of each entry's group, counted from the left."""
    boundaries = (~joined).long().cumsum(-1)
    return torch.nn.functional.pad(boundaries, (1, 0))


def _means(values: Tensor, group: Tensor) -> Tensor:
    """The mean of each entry's group."""
    zeros = torch.zeros_like(values)
    sums = zeros.scatter_add(-1, group, values)
    sizes = zeros.scatter_add(-1, group, torch.ones_like(values))
    return (sums / sizes.clamp(min=1)).gather(-1, group)


def _pull(level: Tensor, group: Tensor, linked: Tensor, joined: Tensor) -> Tensor:
    """How fast each group moves with the penalty: towards its neighbours, slower if it is large."""
    side = torch.where(linked & ~joined, level.diff(dim=-1).sign(), 0.0)
    ends = torch.nn.functional.pad(side, (0, 1)) - torch.nn.functional.pad(side, (1, 0))
    return _means(ends, group)


def _finish(
    x: Tensor, level: Tensor, group: Tensor, slope: Tensor, open_: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    known_level = torch.where(open_, level, -math.inf)
    highest = torch.where(scale == 1, 0.0, known_level.amax(-1, keepdim=True))
    p = entmax((known_level - highest) / scale, 2.0, -1)
    bad = (x.isnan() | (x == math.inf)).any(-1, keepdim=True) | level.isnan().any(-1, keepdim=True)
    known = (p > 0) & ~bad
    group = torch.where(known, group, -1).to(torch.int32)
    slope = torch.where(known, slope, 0.0)
    return torch.where(bad, torch.nan, p).to(x.dtype), group, slope.to(x.dtype)
