"""The regularized argmax of a smooth function on the simplex: FISTA, then Newton on the support.

Newton's method gives the last digits, which projected gradients reach too slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel._checks import check_at_least, check_scores, check_tol
from fenchel.maps import sparsemax
from fenchel.solvers.kkt import jacobian_product
from fenchel.solvers.row_function import RowFunction, gradient, lifted, row_function


@dataclass(frozen=True)
class SimplexSolution:
    r"""A point of the simplex for every row of scores, and how good it is.

    Args:
        p: the point, of the shape and dtype of the scores; no graph is attached.
        gap: float64, one number per row: the Frank-Wolfe gap :math:`\max_j g_j - \langle g, p
            \rangle` at :math:`g = \theta - \nabla\Omega(p)`. The value at ``p`` is below the
            maximum by at most that much.
        iterations: int64, steps taken in a row.
        converged: bool, whether a row's gap is within the tolerance.
    """

    p: Tensor  # shape: (*rows, n)
    gap: Tensor  # shape: (*rows)
    iterations: Tensor  # shape: (*rows)
    converged: Tensor  # shape: (*rows)


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


#: Iterations of the first round; each further one has twice as many.
_FIRST_ROUND = 16
_NEWTON_STEPS = 32
_MOST_DOUBLINGS = 60  # of a Lipschitz constant in one iteration


def regularized_argmax(
    omega: RowFunction,
    scores: Tensor,
    *,
    tol: float = 1e-10,
    max_iter: int = 1000,
    strongly_convex: bool = True,
) -> SimplexSolution:
    r"""The regularized argmax of any smooth convex function, by accelerated projected gradients.

    .. math:: p(\theta) = \arg\max_{p \in \triangle} \langle \theta, p \rangle - \Omega(p)

    FISTA with a step size of its own in every row (found by backtracking), adaptive restarts and
    projections by :func:`fenchel.sparsemax`, in rounds; after each round Newton's method on the
    support takes over for as long as it lowers the gap, which gives the last digits where
    :math:`\Omega` is smooth. All in float64. A row that is done is left alone: its result does not
    depend on the rest of the batch, except through how ``omega`` rounds it there.

    ``-inf`` is a mask; a fully masked row is all zeros; a row with NaN or ``+inf`` is all NaN.
    Nothing here is differentiable: :meth:`fenchel.Regularizer.from_function` makes a map of it.

    Args:
        omega: convex, differentiable twice by torch, ``(*rows, n)`` to ``(*rows)``, in float64. It
            is only called on points with entries above 0 that sum to 1. A function of a single
            row, ``(n)`` to a number, is taken too.
        scores: shape ``(*rows, n)``, floating dtype.
        tol: the gap at which a row is done, relative to 1 plus the size of the slopes.
        max_iter: the most steps, of both kinds together, that a row may take.
        strongly_convex: False if Hessians may be singular; Newton's steps are then those of least
            norm.

    Returns:
        A :class:`SimplexSolution`: points, gaps, iterations, and which rows converged.

    Example:
        >>> scores = torch.tensor([[-2.0, 0.0, 0.5], [3.0, 0.0, 0.0]])
        >>> solution = regularized_argmax(lambda p: 0.5 * (p * p).sum(-1), scores)
        >>> solution.p
        tensor([[0.0000, 0.2500, 0.7500],
                [1.0000, 0.0000, 0.0000]])
        >>> bool((solution.gap < 1e-12).all())
        True

    References:
        Beck & Teboulle. A Fast Iterative Shrinkage-Thresholding Algorithm. SIAM J. Imaging 2009.
        O'Donoghue & Candès. Adaptive Restart for Accelerated Gradient Schemes. FoCM 2015.
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """
    name = "regularized_argmax"
    check_scores(name, scores, -1)
    tol, max_iter = check_tol(name, tol), check_at_least(name, "max_iter", max_iter, 1)
    omega = row_function(name, omega, scores.shape[-1], scores.device)
    return solve(omega, scores, tol=tol, max_iter=max_iter, strongly_convex=strongly_convex)


@torch.no_grad()
def solve(
    omega: RowFunction, scores: Tensor, *, tol: float, max_iter: int, strongly_convex: bool
) -> SimplexSolution:
    """:func:`regularized_argmax` with its arguments checked."""
    n = scores.shape[-1]
    rows = scores.reshape(-1, n).double()
    top = rows.amax(-1, keepdim=True)
    bad = top.isnan() | (top == math.inf)
    p = torch.where(bad, math.nan, torch.zeros_like(rows))
    gap = torch.where(bad, math.nan, torch.zeros_like(top)).squeeze(-1)
    iterations = torch.zeros_like(gap, dtype=torch.int64)
    converged = ~bad.squeeze(-1)

    left = (converged & (top.squeeze(-1) != -math.inf)).nonzero().squeeze(-1)
    problem = Objective(omega, (rows - top)[left])
    point, lipschitz = problem.centre(), torch.ones_like(problem.scores[:, :1])
    p[left], gap[left] = point, math.inf
    used, length = 0, _FIRST_ROUND
    while len(left) > 0:
        length = min(length, max_iter - used)
        point, lipschitz, taken = _fista(problem, point, lipschitz, tol, length)
        bound = problem.gap(point, problem.slope(point))
        newton = min(_NEWTON_STEPS, max_iter - used - length)
        point, bound, more = polish(
            problem, point, bound, steps=newton, strongly_convex=strongly_convex
        )
        better = bound < gap[left]  # than in an earlier round
        p[left[better]], gap[left[better]] = point[better], bound[better]
        iterations[left] += taken + more
        met = problem.is_within(tol, bound, point, problem.slope(point))
        converged[left] = met
        used, length = used + length + newton, 2 * length
        if used >= max_iter:
            break
        left, point, lipschitz, problem = left[~met], point[~met], lipschitz[~met], problem.at(~met)

    shape = scores.shape[:-1]
    return SimplexSolution(
        p.to(scores.dtype).reshape(scores.shape),
        gap.reshape(shape),
        iterations.reshape(shape),
        converged.reshape(shape),
    )


def _fista(
    problem: Objective, x: Tensor, lipschitz: Tensor, tol: float, length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The best points of a round, the Lipschitz constants found, and the steps in each row."""
    y, momentum = x, torch.ones_like(lipschitz)
    best, lowest = x, torch.full_like(x[:, 0], math.inf)
    taken = torch.zeros_like(lowest, dtype=torch.int64)
    going = torch.ones_like(lipschitz, dtype=torch.bool)
    for _ in range(length):
        new, slope, lipschitz = _ascend(problem, y, lipschitz, going)
        taken += going.squeeze(-1)
        gap = problem.gap(new, slope)
        better = going.squeeze(-1) & (gap < lowest)
        best = torch.where(better.unsqueeze(-1), new, best)
        lowest = torch.where(better, gap, lowest)
        going = going & ~problem.is_within(tol, gap, new, slope).unsqueeze(-1)
        if not bool(going.any()):
            break
        # The momentum points uphill no more: forget it.
        restart = ((y - new) * (new - x)).sum(-1, keepdim=True) > 0
        after = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        ahead = problem.project(new + (momentum - 1) / after * (new - x))  # Ω lives on the simplex
        # Nor may it carry an entry to 0, where a slope can be infinite and no step is small enough.
        stay = restart | ((ahead == 0) & (new > 0)).any(-1, keepdim=True)
        x, y = torch.where(going, new, x), torch.where(going, torch.where(stay, new, ahead), y)
        momentum = torch.where(restart, 1.0, after)
        lipschitz = torch.where(going, 0.9 * lipschitz, lipschitz)
    return best, lipschitz, taken


def _ascend(
    problem: Objective, y: Tensor, lipschitz: Tensor, going: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""A projected step from ``y``, the slope there, and a Lipschitz constant that holds for it.

    It holds when :math:`\langle \nabla\Omega(x) - \nabla\Omega(y), x - y \rangle \le L \|x -
    y\|^2`. That is enough for x not to be worse than y, and unlike differences of values it keeps
    its digits next to the solution.
    """
    slope = problem.slope(y)
    for _ in range(_MOST_DOUBLINGS):
        x = problem.project(y + slope / lipschitz)
        ahead = problem.slope(x)
        move = x - y
        bend = torch.where(move == 0, 0.0, (slope - ahead) * move).sum(-1, keepdim=True)
        rounding = torch.where(move == 0, 0.0, slope.abs() * move.abs()).sum(-1, keepdim=True)
        limit = lipschitz * move.square().sum(-1, keepdim=True)
        holds = bend <= limit + 4 * torch.finfo(bend.dtype).eps * rounding
        if bool((holds | ~going).all()):
            break
        lipschitz = torch.where(holds | ~going, lipschitz, 2 * lipschitz)
    holds = holds & ~x.isnan().any(-1, keepdim=True)
    return torch.where(holds, x, y), torch.where(holds, ahead, slope), lipschitz


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
