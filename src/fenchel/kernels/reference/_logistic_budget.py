"""Sigmoids that share a budget, in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter, widen
from fenchel._guarded import finite_max
from fenchel.kernels._table import row_map

_SATURATED = 700.0  # beyond this distance a sigmoid is 0 or 1 to more digits than anyone sees


@row_map("logistic_budget")
def logistic_budget(x: Tensor, k: Parameter, dim: int) -> Tensor:
    """p = sigmoid(x - tau) with sum(p) = k; a row with at most k unmasked entries gives each 1."""
    work = widen(x)
    kept = work > -math.inf
    count = kept.sum(dim, keepdim=True)
    goal = widen(k).to(work.device) if isinstance(k, Tensor) else work.new_tensor(k)
    goal = goal.expand(count.shape)
    full, none = count <= goal, goal == 0
    u = work - _pivot(work, goal, count, dim)
    open_goal = torch.where(full | none, 0.5 * count.clamp(min=1), goal)
    even = (count.clamp(min=1) / open_goal - 1).log()
    low = torch.where(kept, u, math.inf).amin(dim, keepdim=True) + even
    high = torch.where(kept, u, -math.inf).amax(dim, keepdim=True) + even
    low, high = low.clamp(min=-_SATURATED), high.clamp(max=_SATURATED)
    middle = low / 2 + high / 2
    low, high = torch.where(low < high, low, middle), torch.where(low < high, high, middle)
    tau, rest = _sigmoid_root(u, open_goal, full | none, low, high, even, dim)
    p, _ = _sigmoid((u - tau) - rest)
    p = torch.where(full, 1.0, torch.where(none, 0.0, p))
    p = torch.where(kept, p, 0.0)
    valid = (x.amax(dim, keepdim=True) < math.inf) & (goal >= 0)
    return torch.where(valid, p, torch.nan).to(x.dtype)


def _pivot(work: Tensor, goal: Tensor, count: Tensor, dim: int) -> Tensor:
    """The ceil(k)-th largest score: tau is near it wherever an entry is between 0 and 1."""
    ranked = work.sort(dim=dim, descending=True).values
    rank = goal.ceil().clamp(min=1).nan_to_num(1.0).minimum(count.clamp(min=1)).long() - 1
    return finite_max(ranked.gather(dim, rank), dim)


def _sigmoid_root(
    u: Tensor, goal: Tensor, done: Tensor, low: Tensor, high: Tensor, start: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """tau in [low, high] with sum(sigmoid(u - tau)) = goal, and the step not yet taken."""
    tau = start.clamp(low, high)
    rest = torch.zeros_like(tau)
    enough = 4 * torch.finfo(u.dtype).eps * goal.clamp(min=1)
    for step in range(160 if u.dtype == torch.float64 else 80):
        p, derivative = _sigmoid(u - tau)
        excess = p.sum(dim, keepdim=True) - goal
        slope = derivative.sum(dim, keepdim=True)
        low = torch.where(excess >= 0, tau, low)
        high = torch.where(excess <= 0, tau, high)
        rest = torch.where(slope > 0, excess / slope, 0.0)
        newton, middle = tau + rest, low / 2 + high / 2
        moving = (excess.abs() > enough) & ~done & (middle > low) & (middle < high)
        if not torch.compiler.is_compiling() and not bool(moving.any()):
            break
        inside = (slope > 0) & (newton > low) & (newton < high)
        following = torch.where(inside, newton, middle) if step % 3 != 2 else middle
        # A row that is done stands still: its result must not depend on its neighbours.
        tau = torch.where(moving, following, tau)
    return tau, torch.where(rest.abs() < 1e-6, rest, 0.0)


def _sigmoid(v: Tensor) -> tuple[Tensor, Tensor]:
    """The sigmoid and its derivative. torch.sigmoid differs by where in a tensor an entry lies."""
    e = (-v.abs()).exp()
    return torch.where(v < 0, e, 1.0) / (1 + e), e / (1 + e).square()
