r"""L-BFGS on the primal, in parameters that are better conditioned.

They are :math:`V = A^\top W` with :math:`A A^\top = H`: at :math:`W = 0` a loss with a map that is
symmetric in the classes has the Hessian

.. math:: H = \frac{1}{S} X^\top \mathrm{diag}(w) X + \frac{K}{C S} I

in each class, up to a factor and the ties between classes. In V features that are correlated, or of
different sizes, no longer cost iterations.
"""

from __future__ import annotations

from typing import Any

from fenchel.solvers._scipy import LinAlgError, minimize, np, solve_triangular, sparse
from fenchel.solvers.linear_model import FitProblem, Outcome, Report, duality_gap, is_rounding

_EPS = float(np.finfo(np.float64).eps)
_STOPPED = 99  # SciPy's status if the callback said so
_MOST_FEATURES = 1024
_COSTS_AT_MOST = 8  # products of X and W


def solve_primal(problem: FitProblem, tol: float, max_iter: int, progress: Report) -> Outcome:
    """Minimize until the largest entry of the gradient is at most ``tol``."""
    change = Precondition(problem)
    gradient = np.zeros(0)  # of the last point, in W and b
    count = 0

    def objective(V: Any) -> tuple[float, Any]:
        nonlocal gradient
        value, gradient = problem.value_and_gradient(change.weights(V))
        return value, change.gradient(gradient)

    def check(intermediate_result: Any) -> None:
        nonlocal count
        count += 1
        progress(f"iteration {count}, objective {intermediate_result.fun:.6g}")
        if np.abs(gradient).max() <= tol:
            raise StopIteration

    result = minimize(
        objective,
        np.zeros((problem.features + problem.fit_intercept) * problem.classes),
        method="L-BFGS-B",
        jac=True,
        callback=check,
        options={
            "maxiter": max_iter,
            "maxfun": 20 * max_iter,
            "gtol": 0.0,
            "ftol": 64 * _EPS,
            "maxls": 50,
        },
    )
    W, b = problem.unpack(change.weights(result.x))
    # The last point that was looked at need not be the best one.
    at = np.vstack([W, b[None]])[: problem.features + problem.fit_intercept]
    if result.status != _STOPPED:
        _, gradient = problem.value_and_gradient(at.ravel())
    missing = -gradient[-problem.classes :] if problem.fit_intercept else np.zeros(len(b))
    gap, _ = duality_gap(problem, W, b, missing)
    # Rounding can end the line search of a fit that is as good as it gets.
    converged = result.status in (0, _STOPPED) or is_rounding(gap, result.fun)
    reason = "stopped" if result.status == 1 else "the line search found no better point"
    progress(f"{result.nit} iterations, objective {result.fun:.6g}, gap {gap:.2g}", final=True)
    return Outcome(W, b, max(1, int(result.nit)), gap, bool(converged), reason)


class Precondition:
    """The change of parameters; none where it would cost more than a few iterations."""

    def __init__(self, problem: FitProblem) -> None:
        self.classes = problem.classes
        self.factor = None
        few = problem.features <= min(_MOST_FEATURES, _COSTS_AT_MOST * problem.classes)
        if few and not sparse.issparse(problem.X):
            self.factor = _factor(problem)

    def weights(self, V: Any) -> Any:
        """W of a flat V, flat."""
        if self.factor is None:
            return V
        V = V.reshape(-1, self.classes)
        return solve_triangular(self.factor, V, lower=True, trans=1, check_finite=False).ravel()

    def gradient(self, gradient: Any) -> Any:
        """The gradient in V from that in W, both flat."""
        if self.factor is None:
            return gradient
        gradient = gradient.reshape(-1, self.classes)
        return solve_triangular(self.factor, gradient, lower=True, check_finite=False).ravel()


def _factor(problem: FitProblem) -> Any:
    """The Cholesky factor of H, or None if there is none."""
    d, size = problem.features, problem.features + problem.fit_intercept
    H = np.zeros((size, size))
    for rows, part in zip(problem.blocks, problem.parts, strict=True):
        weights = None if problem.weights is None else problem.weights[rows, None]
        weighted = part if weights is None else part * weights
        H[:d, :d] += weighted.T @ part
        if problem.fit_intercept:
            H[d, :d] += weighted.sum(0)
    H[:d, d:] = H[d:, :d].T
    H[d:, d:] = problem.total
    H /= problem.total
    H[range(d), range(d)] += problem.classes / (problem.C * problem.total)
    H[range(size), range(size)] += 1e-10 * H.diagonal().max()
    try:
        return np.linalg.cholesky(H)
    except LinAlgError:
        return None
