from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import check_scores
from fenchel.solvers._newton import polish
from fenchel.solvers._objective import Objective
from fenchel.solvers._solution import SimplexSolution
from fenchel.solvers.arguments import check_max_iter, check_tol
from fenchel.solvers.derivatives import RowFunction
from fenchel.solvers.row_function import row_function

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
    tol, max_iter = check_tol(name, tol), check_max_iter(name, max_iter)
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
