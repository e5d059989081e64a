"""Newton's method on the support: the last digits, which projected gradients reach too slowly."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel.solvers._objective import Objective
from fenchel.solvers.derivatives import lifted
from fenchel.solvers.kkt import jacobian_product

#: Parts of Newton's direction that are tried, all at once.
_STEPS = (1.0, 0.5, 0.2, 0.05, 0.01)
_FLOORS = (1e-3, 1e-5, 1e-8, 1e-11)
#: A step must lower the gap to this part of it: at the level of rounding few do.
_PROGRESS = 0.99
#: exp(50) is enough to cross the range of a float64's digits in one step.
_LARGEST_EXPONENT = 50.0


def polish(
    problem: Objective, p: Tensor, gap: Tensor, *, steps: int, strongly_convex: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Points with a gap that is lower or the same, that gap, and the steps taken in each row.

    A row goes on while its gap falls. The gap bounds the suboptimality, so no step makes it worse.
    """
    p, gap, taken = p.clone(), gap.clone(), torch.zeros_like(gap, dtype=torch.int64)
    moving = (gap > 0).nonzero().squeeze(-1)
    for _ in range(steps):
        if len(moving) == 0:
            break
        better, lower = _step(problem.at(moving), p[moving], strongly_convex)
        taken[moving] += 1
        falls = lower <= _PROGRESS * gap[moving]
        moving = moving[falls]
        p[moving], gap[moving] = better[falls], lower[falls]
        moving = moving[gap[moving] > 0]
    return p, gap, taken


def _step(problem: Objective, p: Tensor, strongly_convex: bool) -> tuple[Tensor, Tensor]:
    """The candidate with the lowest gap, and that gap."""
    slope = problem.slope(p)
    mean = torch.where(p == 0, 0.0, p * slope).sum(-1, keepdim=True)
    working = (p > 0) | (slope > mean)  # what has mass, and what wants some
    vector = torch.where(working, slope - mean, 0.0)
    direction, _ = jacobian_product(problem.omega, p, working, vector, strongly_convex)
    candidates = _candidates(p, direction, working)
    count, rows, n = candidates.shape
    flat = candidates.reshape(count * rows, n)
    copies = Objective(problem.omega, problem.scores.repeat(count, 1))
    gaps = copies.gap(flat, copies.slope(flat)).reshape(count, rows)
    lowest, which = gaps.min(0)
    return candidates.gather(0, which[None, :, None].expand(1, rows, n)).squeeze(0), lowest


def _candidates(p: Tensor, direction: Tensor, working: Tensor) -> Tensor:
    """Points of the simplex along Newton's direction, shape (candidates, rows, n).

    Straight: p + td, entries below 0 becoming 0, which is where a bounded slope wants them; also
    the t at which the first entry does. Bent: p exp(td / p), the same to first order, for slopes
    that go to infinity at 0, where no entry may arrive (exact in one step for Shannon's entropy).
    Raised: with no entry below some floor, for those that are at 0 and should not be, and for a
    function like p log max(p, 1e-12) whose slope jumps next to 0.
    """
    base = lifted(p)
    blocked = torch.where(direction < 0, p / -direction, 1.0).amin(-1, keepdim=True).clamp(0, 1)
    straight = [p + step * direction for step in (*_STEPS, blocked)]
    limit = _LARGEST_EXPONENT
    bent = [base * (step * direction / base).clamp(-limit, limit).exp() for step in _STEPS]
    raised = [point.clamp_min(floor) for floor in _FLOORS for point in (p, bent[0])]
    points = torch.stack(straight + bent + raised)
    points = torch.where(working, points, 0.0).clamp_min(0.0)
    return points / points.sum(-1, keepdim=True)
