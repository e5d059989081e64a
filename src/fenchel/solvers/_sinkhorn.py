from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int, check_positive
from fenchel._graphs import outside_graphs
from fenchel._warn import warn
from fenchel.structures import Assignment
from fenchel.structures.matrix import inside_cells, matrix_problem
from fenchel.structures.problem import Problem, refuse_unreadable

_CHECK_EVERY = 8  # iterations between two looks at the error


@dataclass(frozen=True)
class SinkhornSolution:
    r"""Entropic plans, and how good they are.

    Args:
        plan: of the shape and dtype of the scores; no graph is attached.
        error: float64, one number per instance: the most that a row or column of the plan is off
            its marginal. All other conditions of optimality hold by construction.
        iterations: int64, how often both potentials of an instance were updated.
        converged: bool, whether an instance's error is within the tolerance.
    """

    plan: Tensor  # shape: (*batch, n, m)
    error: Tensor  # shape: (*batch)
    iterations: Tensor  # shape: (*batch)
    converged: Tensor  # shape: (*batch)


@outside_graphs
def sinkhorn(
    scores: Tensor,
    gamma: float = 1.0,
    *,
    row_marginals: Tensor | None = None,
    column_marginals: Tensor | None = None,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
) -> Tensor:
    r"""Entropic assignment: a doubly stochastic matrix by Sinkhorn's iterations.

    .. math:: P = \arg\max_{P \ge 0} \langle \theta, P \rangle - \gamma \sum_{ij} P_{ij} \log P_{ij}
        \quad \text{s.t. } P 1 = r,\ P^\top 1 = c

    By default all marginals are 1; of a rectangle, the rows of the longer side have *at most* 1, as
    in an :class:`fenchel.Assignment`. For :math:`\gamma \to 0` the plan goes to the best
    assignment, but ever more slowly. The entropy is that of the pairs, not of whole assignments:
    these are no marginals of a Gibbs distribution (which are #P-hard), and every pair that is not
    masked gets some mass; :class:`fenchel.SparseMAP` gives zeros.

    All is computed in logarithms and float64. Derivatives are those of the optimality conditions:
    one linear system, exact at the solution however many iterations it took. If the error is above
    ``tol`` after ``max_iter`` iterations there is a warning; :func:`sinkhorn_solve` reports it.

    Args:
        scores: (*batch, n, m); ``-inf`` is a pair that must not be used.
        gamma: the temperature, above 0.
        row_marginals: (*batch, n) or (n), positive; give both marginals (of equal sums) or none.
        column_marginals: (*batch, m) or (m).
        lengths: (*batch, 2), rows and columns of each instance, if they differ.
        mask: boolean, True where a pair may be used.
        max_iter: the most iterations.
        tol: the error of the marginals at which an instance is done.

    Returns:
        The plan, of the shape of the scores, 0 in padding.

    Example:
        >>> sinkhorn(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.7311, 0.2689],
                [0.2689, 0.7311]])

    References:
        Sinkhorn & Knopp. Concerning Nonnegative Matrices and Doubly Stochastic Matrices. 1967.
        Cuturi. Sinkhorn Distances: Lightspeed Computation of Optimal Transport. NeurIPS 2013.
    """
    settings = _settings("sinkhorn", gamma, max_iter, tol)
    problem, rows, columns = _arguments(
        "sinkhorn", scores, row_marginals, column_marginals, lengths, mask
    )
    plan: Tensor = _Sinkhorn.apply(problem.scores, rows, columns, problem.layout, settings)
    return problem.means(plan)


@outside_graphs
def sinkhorn_solve(
    scores: Tensor,
    gamma: float = 1.0,
    *,
    row_marginals: Tensor | None = None,
    column_marginals: Tensor | None = None,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
) -> SinkhornSolution:
    """The plan of :func:`sinkhorn` with its error and iterations; no graph, and no warning.

    Example:
        >>> solution = sinkhorn_solve(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
        >>> bool(solution.converged), bool(solution.error < 1e-6)
        (True, True)
    """
    name = "sinkhorn_solve"
    settings = _settings(name, gamma, max_iter, tol)
    with torch.no_grad():
        problem, rows, columns = _arguments(
            name, scores, row_marginals, column_marginals, lengths, mask
        )
        plan, error, iterations, _ = _solve(problem.scores, rows, columns, problem.layout, settings)
    shape, device = problem.batch_shape, problem.device
    return SinkhornSolution(
        problem.means(plan),
        error.reshape(shape).to(device),
        iterations.reshape(shape).to(device),
        (error <= tol).reshape(shape).to(device),
    )


def _settings(name: str, gamma: Any, max_iter: Any, tol: Any) -> tuple[float, int, float]:
    gamma = check_positive(name, "gamma", gamma, 1e300, "a number above 0")
    tol = check_positive(name, "tol", tol, 1.0, "above 0 and at most 1")
    if check_int(name, "max_iter", max_iter) < 1:
        raise FenchelError(f"{name}: `max_iter` must be at least 1; got {max_iter}.")
    return gamma, int(max_iter), tol


def _arguments(
    name: str, scores: Any, rows: Any, columns: Any, lengths: Any, mask: Any
) -> tuple[Problem, Tensor, Tensor]:
    """The problem with padding at -inf, and marginals; negative: at most so much."""
    problem = matrix_problem(name, scores, lengths, mask)
    n, m = problem.layout
    inside = inside_cells(problem.sizes, n, m)
    if (rows is None) != (columns is None):
        raise FenchelError(f"{name}: expected both marginals or none, but got only one of them.")
    if rows is None:
        if bool((problem.scores.detach() == -math.inf).any()):
            Assignment().best_parts(problem, problem.scores)  # raises if there is none
        height, width = problem.sizes[:, :1], problem.sizes[:, 1:]
        rows = torch.where(height <= width, 1.0, -1.0).double() * inside.any(2)
        columns = torch.where(width <= height, 1.0, -1.0).double() * inside.any(1)
    else:
        rows = _marginals(name, "row_marginals", rows, problem, n, inside.any(2))
        columns = _marginals(name, "column_marginals", columns, problem, m, inside.any(1))
        totals = rows.detach().sum(1), columns.detach().sum(1)
        apart = (totals[0] - totals[1]).abs() > 1e-5 * totals[0]
        if bool(apart.any()):
            row = int(apart.long().argmax())
            raise FenchelError(
                f"{name}: expected marginals of equal sums, but in instance {row} of the batch the "
                f"rows sum to {float(totals[0][row]):g} and the columns to "
                f"{float(totals[1][row]):g}."
            )
        # What float32 rounded off the sums is put on the columns.
        columns = columns * (totals[0] / totals[1]).unsqueeze(1)
        finite = ((problem.scores.detach() > -math.inf).reshape(inside.shape)) & inside
        if not bool(
            (finite.any(2) == inside.any(2)).all() & (finite.any(1) == inside.any(1)).all()
        ):
            raise FenchelError(
                f"{name}: expected a finite score in every row and column, but one has none; mask "
                "fewer pairs or take it out with `lengths`."
            )
    flat = torch.where(inside.flatten(1), problem.scores, -math.inf)
    return Problem(**{**problem.__dict__, "scores": flat}), rows, columns


def _marginals(
    name: str, label: str, values: Any, problem: Problem, size: int, inside: Tensor
) -> Tensor:
    shape = (*problem.batch_shape, size)
    fits = isinstance(values, Tensor) and values.is_floating_point()
    if not fits or tuple(values.shape) not in (shape, (size,)):
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise FenchelError(
            f"{name}: expected `{label}` to be a floating tensor of shape {shape} or {(size,)}, "
            f"but got {got}."
        )
    flat = values.to("cpu", torch.float64).expand(shape).reshape(-1, size)
    known = flat.detach()
    if bool((~((known > 0) & (known < math.inf)) & inside).any()):
        raise FenchelError(f"{name}: expected `{label}` to be positive and finite.")
    return torch.where(inside, flat, 0.0)


def _solve(
    scores: Tensor,
    rows: Tensor,
    columns: Tensor,
    layout: tuple[int, ...],
    settings: tuple[float, int, float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Plans (instances, n * m), errors and iterations (instances), and the constraints that hold.

    The last are (instances, n + m), False for an "at most" that is slack, and for padding.

    The dual is maximised over the potentials of rows and of columns in turns. "At most" asks for a
    potential of at most 0, and the maximum under that bound is the free one cut off there.
    """
    gamma, max_iter, tol = settings
    logits = scores.reshape(-1, *layout) / gamma
    f, g = torch.zeros_like(rows), torch.zeros_like(columns)
    error = torch.full((len(rows),), math.inf, dtype=rows.dtype)
    iterations = torch.zeros(len(rows), dtype=torch.int64)
    left = torch.arange(len(rows))
    for step in range(1, max_iter + 1):
        z = logits[left]
        f[left] = _potential(z + g[left].unsqueeze(1), rows[left], 2)
        g[left] = _potential(z + f[left].unsqueeze(2), columns[left], 1)
        iterations[left] = step
        if step % _CHECK_EVERY == 0 or step == max_iter:
            plan = (z + f[left].unsqueeze(2) + g[left].unsqueeze(1)).exp()
            error[left] = torch.maximum(
                _violation(plan.sum(2), rows[left], f[left]),
                _violation(plan.sum(1), columns[left], g[left]),
            )
            left = left[error[left] > tol]
            if len(left) == 0:
                break
    plan = (logits + f.unsqueeze(2) + g.unsqueeze(1)).exp()
    held = [(rows > 0) | (f < 0), (columns > 0) | (g < 0)]
    return plan.flatten(1), error, iterations, torch.cat(held, 1)


def _potential(z: Tensor, marginals: Tensor, dim: int) -> Tensor:
    """What makes the sums of exp(z) over ``dim`` the marginals, or at most minus those below 0."""
    total = z.logsumexp(dim)
    at = marginals.abs().log() - total
    at = torch.where(marginals < 0, at.clamp(max=0.0), at)
    return torch.where(marginals == 0, 0.0, at)


def _violation(sums: Tensor, marginals: Tensor, potentials: Tensor) -> Tensor:
    off = sums - marginals.abs()
    slack = (marginals < 0) & (potentials == 0)  # less is as good
    return torch.where(slack, off.clamp(min=0.0), off.abs()).amax(1)


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        rows: Tensor,
        columns: Tensor,
        layout: tuple[int, ...],
        settings: tuple[float, int, float],
    ) -> Tensor:
        plan, error, _, held = _solve(scores, rows, columns, layout, settings)
        stopped = error > settings[2]
        if bool(stopped.any()):
            warn(
                f"sinkhorn: {int(stopped.sum())} of {stopped.numel()} plans did not converge in "
                f"{settings[1]} iterations (the largest error of a marginal is "
                f"{float(error[stopped].amax()):.1e}); raise `max_iter`, `tol` or `gamma`, "
                "or rescale the scores.",
            )
        ctx.save_for_backward(scores, rows, columns, plan, held)
        ctx.rest = layout, settings
        return plan

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_unreadable(grad)
        scores, rows, columns, plan, held = ctx.saved_tensors
        layout, settings = ctx.rest
        if torch.is_grad_enabled():  # a second derivative is wanted
            plan = _Sinkhorn.apply(scores, rows, columns, layout, settings)
        p = plan.reshape(-1, *layout)
        weighted = grad.reshape(p.shape) * p
        # A constraint that is "at most" and slack has no potential that could move.
        by_row, by_column = held.to(p.dtype).split(list(layout), 1)
        cross = p * by_row.unsqueeze(2) * by_column.unsqueeze(1)
        system = torch.cat(
            [
                torch.cat([torch.diag_embed(p.sum(2) * by_row), cross], 2),
                torch.cat([cross.transpose(1, 2), torch.diag_embed(p.sum(1) * by_column)], 2),
            ],
            1,
        )
        right = torch.cat([weighted.sum(2) * by_row, weighted.sum(1) * by_column], 1)
        # Singular: a constant may go from rows to columns. The solution of least norm is as good.
        inverse = torch.linalg.pinv(system, rtol=1e-13, hermitian=True)
        a, b = (inverse @ right.unsqueeze(2)).squeeze(2).split(list(layout), 1)
        moved = (weighted - p * (a.unsqueeze(2) + b.unsqueeze(1))) / settings[0]
        return moved.flatten(1), a * rows.sign(), b * columns.sign(), None, None
