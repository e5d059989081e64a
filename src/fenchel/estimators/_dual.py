r"""Block coordinate ascent on the dual, one row at a time, until the duality gap is small.

Without an intercept this is the dual of ``_gap.py``. An intercept adds one equation for all rows,
:math:`r = \sum_i w_i (y_i - \beta_i) = 0`; it is met by the method of multipliers, which is the
proximal point method on b: with :math:`b_0` held still the penalty :math:`\|b - b_0\|^2 / (2 \rho)`
makes b one more penalized weight, :math:`b = b_0 + \rho r`, and once that problem is solved well
enough for the step :math:`b - b_0` to be trusted, :math:`b_0` moves to b.
"""

from __future__ import annotations

from typing import Any

from fenchel.estimators._block import choose_block
from fenchel.estimators._gap import duality_gap, is_rounding
from fenchel.estimators._outcome import Outcome, Progress
from fenchel.estimators._problem import FitProblem
from fenchel.estimators._sklearn import np, sparse

_TRUST = 0.25  # how large, relative to that of the step, the gap of the inner problem may be


class _State:
    """β of every row, and the weights and intercept that follow from it."""

    def __init__(self, problem: FitProblem) -> None:
        self.problem = problem
        X = problem.X
        squares = X.multiply(X).sum(1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
        squares = np.asarray(squares, dtype=np.float64).ravel()
        weights = np.ones(problem.n) if problem.weights is None else problem.weights
        # As much curvature for b as for an average feature vector.
        self.rho = problem.C * max(float(squares.mean()), 1e-12) if problem.fit_intercept else 0.0
        self.weights = weights
        self.sigma = weights * (problem.C * squares + self.rho)
        self.beta = np.concatenate([problem.targets.dense(rows) for rows in problem.blocks])
        self.b0 = np.zeros(problem.classes)
        self.W = np.zeros((problem.features, problem.classes))
        self.r = np.zeros(problem.classes)

    @property
    def b(self) -> Any:
        return self.b0 + self.rho * self.r

    def refresh(self) -> None:
        """W and r from β anew: what was added up row by row has rounding in it."""
        self.W[:] = 0.0
        self.r[:] = 0.0
        for rows, part in zip(self.problem.blocks, self.problem.parts, strict=True):
            point = self.beta[rows].copy()
            self.problem.residual(point, rows)
            self.W -= self.problem.C * (part.T @ point)
            self.r -= point.sum(0)
        if not self.problem.fit_intercept:
            self.r[:] = 0.0

    def inner_gap(self) -> float:
        """The gap, over S, of the problem with the penalty on b − b₀."""
        problem, b = self.problem, self.b
        loss = entropy = 0.0
        for rows, _, scores in problem.scores(self.W, b):
            p = problem.oracle.predict(scores)
            loss += problem.loss_of(scores, p, rows)
            entropy += problem.weighted(problem.oracle.omega(self.beta[rows]), rows)
        squares = float(np.vdot(self.W, self.W)) / problem.C + self.rho * float(self.r @ self.r)
        return (loss + entropy + squares + float(self.b0 @ self.r)) / problem.total


def solve_dual(
    problem: FitProblem, tol: float, max_iter: int, progress: Progress, rng: Any
) -> Outcome:
    """Ascend until the duality gap is at most ``tol``; an iteration is a pass over the rows."""
    state = _State(problem)
    ascend = _sparse_pass if sparse.issparse(problem.X) else _dense_pass
    active = np.flatnonzero(state.sigma > 0)
    still = np.flatnonzero((state.sigma == 0) & (state.weights > 0))
    if still.size:  # rows of zeros, without an intercept: their scores are 0
        state.beta[still] = problem.oracle.predict(np.zeros((still.size, problem.classes)))
    gap = value = float("inf")
    count = 0
    for count in range(1, max_iter + 1):
        ascend(state, rng.permutation(active))
        state.refresh()
        gap, value = duality_gap(problem, state.W, state.b, state.r / problem.total, state.beta)
        progress(f"pass {count}, duality gap {gap:.3g}")
        if gap <= tol:
            break
        if problem.fit_intercept:
            step = 0.5 * state.rho * float(state.r @ state.r) / problem.total
            if state.inner_gap() <= max(_TRUST * step, 0.1 * tol):
                state.b0 = state.b
    converged = gap <= tol or is_rounding(gap, value)
    progress(f"{count} passes, duality gap {gap:.3g}", final=True)
    return Outcome(state.W, state.b, count, gap, converged, "stopped")


def _dense_pass(state: _State, order: Any) -> None:
    """One step in every row of ``order``."""
    X, W, beta, r = state.problem.X, state.W, state.beta, state.r
    block, C = choose_block(state.problem.oracle), state.problem.C
    b = state.b
    for i in order:
        x, old = X[i], beta[i]
        new = block(x @ W + b, old, state.sigma[i])
        change = new - old
        if change.any():
            change *= state.weights[i]
            W -= np.outer(x, C * change)
            if state.rho:
                r -= change
                b -= state.rho * change
            beta[i] = new


def _sparse_pass(state: _State, order: Any) -> None:
    """The same for the rows of a CSR matrix."""
    X, W, beta, r = state.problem.X, state.W, state.beta, state.r
    block, C = choose_block(state.problem.oracle), state.problem.C
    b = state.b
    for i in order:
        span = slice(X.indptr[i], X.indptr[i + 1])
        at, values, old = X.indices[span], X.data[span], beta[i]
        new = block(values @ W[at] + b, old, state.sigma[i])
        change = new - old
        if change.any():
            change *= state.weights[i]
            W[at] -= np.outer(values, C * change)
            if state.rho:
                r -= change
                b -= state.rho * change
            beta[i] = new
