"""Projection onto the capped simplex in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter, widen
from fenchel._guarded import finite_max
from fenchel.kernels._table import row_map


@row_map("budget")
def budget(x: Tensor, k: Parameter, dim: int) -> Tensor:
    """Projection of x onto {p : 0 <= p <= 1, sum(p) = k}: p = clip(x - tau, 0, 1).

    A row with fewer than k unmasked entries gives each of them 1.
    """
    work = widen(x)
    kept = work > -math.inf
    goal = widen(k).to(work.device) if isinstance(k, Tensor) else k
    full = kept.sum(dim, keepdim=True) <= goal
    high = finite_max(work, dim)
    low = torch.where(kept, work, high).amin(dim, keepdim=True) - 1.0
    tau, _ = _clip_root(work, goal, full, low, high, dim)
    # Once more, measured from the lowest score above tau: there every score that matters is exact.
    grain = 8 * torch.finfo(work.dtype).eps * tau.abs()
    pivot = torch.where(work > tau - grain, work, math.inf).amin(dim, keepdim=True)
    u = torch.where(kept, work - torch.where(pivot < math.inf, pivot, high), -math.inf)
    one = torch.ones_like(tau)
    tau, rest = _clip_root(u, goal, full, -one, one, dim)
    p = torch.where(full, kept.to(work.dtype), ((u - tau) - rest).clamp(0, 1))
    valid = x.amax(dim, keepdim=True) < math.inf
    if isinstance(goal, Tensor):
        valid = valid & (goal >= 0)
    return torch.where(valid, p, torch.nan).to(x.dtype)


def _clip_root(
    u: Tensor, goal: Parameter, full: Tensor, low: Tensor, high: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """tau in [low, high] with sum(clip(u - tau, 0, 1)) = goal, and the step not yet taken.

    The sum is piecewise linear in tau but not convex: Newton inside a bracket, and every other
    step the bracket's middle, which alone would pin tau to the last bit.
    """
    tau = low / 2 + high / 2
    rest = torch.zeros_like(tau)
    eps = torch.finfo(u.dtype).eps
    for step in range(106 if u.dtype == torch.float64 else 48):
        shifted = u - tau
        excess = shifted.clamp(0, 1).sum(dim, keepdim=True) - goal
        active = ((shifted > 0) & (shifted < 1)).sum(dim, keepdim=True)
        low = torch.where(excess >= 0, tau, low)
        high = torch.where(excess <= 0, tau, high)
        rest = torch.where(active > 0, excess / active.clamp(min=1), 0.0)
        newton, middle = tau + rest, low / 2 + high / 2
        moving = ((active == 0) | (rest.abs() > 4 * eps * (1 + tau.abs()))) & ~full
        moving = moving & (middle > low) & (middle < high)
        if not torch.compiler.is_compiling() and not bool(moving.any()):
            break
        inside = (active > 0) & (newton >= low) & (newton <= high)
        following = torch.where(inside, newton, middle) if step % 2 == 0 else middle
        # A row that is done stands still: its result must not depend on its neighbours.
        tau = torch.where(moving, following, tau)
    return tau, torch.where(rest.abs() < 1, rest, 0.0)
