r"""Block coordinate ascent on the dual, one row at a time, until the duality gap is small.

Without an intercept this is the dual of ``linear_model.py``. An intercept adds one equation for all
rows, :math:`r = \sum_i w_i (y_i - \beta_i) = 0`; it is met by the method of multipliers, which is
the proximal point method on b: with :math:`b_0` held still the penalty :math:`\|b - b_0\|^2 / (2
\rho)` makes b one more penalized weight, :math:`b = b_0 + \rho r`, and once that problem is solved
well enough for the step :math:`b - b_0` to be trusted, :math:`b_0` moves to b.

**One block** is all of :math:`\beta_i`, the other rows held still. With :math:`\theta_i` the scores
of the row and :math:`\sigma_i = w_i (C \|x_i\|^2 + \rho)` the dual objective in :math:`\beta_i` is,
up to a constant and the factor :math:`w_i`,

.. math:: \max_{\beta \in \triangle}\ \langle \theta_i, \beta \rangle - \Omega(\beta) -
    \frac{\sigma_i}{2} \|\beta - \beta_i\|^2 .

For a multiple of Tsallis's entropy this is solved exactly: :math:`\log_a \beta_j + \sigma \beta_j =
s_j - \tau` with :math:`s = \theta + \sigma \beta_i`, one root for :math:`\tau`; at α = 2 it is the
projection of :math:`s / (1 + \sigma)`. For every other Ω the step is an exact line search from
:math:`\beta_i` to :math:`\hat y_\Omega(\theta_i)`, which is an ascent direction wherever the two
differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fenchel.solvers._scipy import np, sparse, wrightomega
from fenchel.solvers.linear_model import (
    FitProblem,
    LossOracle,
    Outcome,
    Report,
    duality_gap,
    is_rounding,
)

#: (θ, β, σ) to the new β; all are rows of one problem, σ is a number above 0.
Block = Callable[[Any, Any, float], Any]

_ROOT_STEPS = 100
_GRID = np.linspace(0.0, 1.0, 33)
_REFINEMENTS = 3
_TRUST = 0.25  # how large, relative to that of the step, the gap of the inner problem may be


class _Ascent:
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
    problem: FitProblem, tol: float, max_iter: int, progress: Report, rng: Any
) -> Outcome:
    """Ascend until the duality gap is at most ``tol``; an iteration is a pass over the rows."""
    state = _Ascent(problem)
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


def _dense_pass(state: _Ascent, order: Any) -> None:
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


def _sparse_pass(state: _Ascent, order: Any) -> None:
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


def choose_block(oracle: LossOracle) -> Block:
    """The step that suits Ω."""
    if oracle.alpha is None:
        return lambda theta, beta, sigma: line_search(oracle, theta, beta, sigma)
    alpha, gamma = oracle.alpha, oracle.gamma
    if alpha == 2.0:
        return lambda theta, beta, sigma: project((theta + sigma * beta) / (gamma + sigma))
    return lambda theta, beta, sigma: tsallis(theta / gamma, beta, alpha, sigma / gamma)


def project(s: Any) -> Any:
    """Euclidean projection of one row onto the simplex: Michelot's method."""
    s = s - s.max()
    kept = s[s > -1.0]
    while True:
        tau = (kept.sum() - 1.0) / kept.size
        above = kept > tau
        if above.all():
            return np.maximum(s - tau, 0.0)
        kept = kept[above]


def tsallis(theta: Any, old: Any, alpha: float, sigma: float) -> Any:
    """The block for Ω_α: a safeguarded Newton method for τ, from where the old β has it."""
    a = alpha - 1.0
    s = theta + sigma * old
    s -= s.max()
    low, high = -sigma, -_log(1.0 / s.size, a) - sigma / s.size  # the best entry is 1, or 1/n
    best = old.argmax()
    tau = min(max(s[best] - _log(old[best], a) - sigma * old[best], low), high)
    for _ in range(_ROOT_STEPS):
        beta = _entries(s - tau, a, sigma)
        excess = float(beta.sum()) - 1.0
        if excess > 0:
            low = tau
        else:
            high = tau
        if abs(excess) <= 1e-14 or high - low <= 1e-16 * max(1.0, abs(high)):
            break
        inside = beta[beta > 0]
        rate = float((inside / (inside**a + sigma * inside)).sum()) if inside.size else 0.0
        following = tau + excess / rate if rate > 0 else low
        tau = following if low < following < high else 0.5 * (low + high)
    return beta / beta.sum()


def _log(p: float, a: float) -> float:
    """(p^a − 1) / a."""
    return math.log(p) if a == 0 else math.expm1(a * math.log(p)) / a


def _entries(z: Any, a: float, sigma: float) -> Any:
    """The β ≥ 0 with log_a β + σ β = z, entry by entry; 0 where z is below −1/a, for a > 0."""
    if a == 0:
        return wrightomega(z + math.log(sigma)) / sigma
    if a < 0:
        # Convex and decreasing in β^a: Newton's method from the left, where one of the terms is 0.
        r = np.maximum(1.0 + a * z, np.maximum(1.0, z / sigma) ** a)
        for _ in range(_ROOT_STEPS):
            power = r ** (1.0 / a - 1.0)
            step = (a * z - (r - 1.0) - a * sigma * r * power) / (1.0 + sigma * power)
            r = r + step
            if (step / r).max() <= 1e-15:
                break
        return r ** (1.0 / a)
    u = np.maximum(z + 1.0 / a, 0.0)
    if a == 0.5:
        root = u / (1.0 + np.sqrt(1.0 + sigma * u))
        return root * root
    # Newton's method on a convex increasing function, from the right: in β^a if a < 1, else in β.
    if a < 1:
        r = a * u
        for _ in range(_ROOT_STEPS):
            power = r ** (1.0 / a - 1.0)
            step = (r / a + sigma * r * power - u) / (1.0 / a + sigma / a * power)
            r = np.maximum(r - step, 0.0)
            if step.max() <= 1e-15:
                break
        return r ** (1.0 / a)
    beta = np.minimum((a * u) ** (1.0 / a), u / sigma)
    for _ in range(_ROOT_STEPS):
        power = beta ** (a - 1.0)
        step = (beta * power / a + sigma * beta - u) / (power + sigma)
        beta = np.maximum(beta - step, 0.0)
        if step.max() <= 1e-15:
            break
    return beta


def line_search(oracle: LossOracle, theta: Any, beta: Any, sigma: float) -> Any:
    """The best point between β and the map of θ, for any Ω."""
    direction = oracle.predict(theta[None])[0] - beta
    moving = direction != 0
    if not moving.any():
        return beta
    slope, square = float(theta @ direction), sigma * float(direction @ direction)
    low, width, last = 0.0, 1.0, 0.0
    for _ in range(_REFINEMENTS):
        steps = low + width * _GRID
        gradients = oracle.slope(beta + steps[:, None] * direction)
        rates = gradients[:, moving] @ direction[moving] - slope + steps * square
        rising = np.flatnonzero(rates >= 0)
        if not rising.size:
            low, last = low + width, 0.0
            break
        if rising[0] == 0:
            break
        at = int(rising[0])
        low, width = float(steps[at - 1]), width / (_GRID.size - 1)
        if math.isfinite(rates[at - 1]) and math.isfinite(rates[at]):
            last = width * float(rates[at - 1] / (rates[at - 1] - rates[at]))
    return beta + (low + last) * direction
