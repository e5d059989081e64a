"""L-BFGS on the primal."""

from __future__ import annotations

from typing import Any

from fenchel.estimators._gap import duality_gap, is_rounding
from fenchel.estimators._outcome import Outcome, Progress
from fenchel.estimators._precondition import Precondition
from fenchel.estimators._problem import FitProblem
from fenchel.estimators._sklearn import minimize, np

_EPS = float(np.finfo(np.float64).eps)
_STOPPED = 99  # SciPy's status if the callback said so


def solve_primal(problem: FitProblem, tol: float, max_iter: int, progress: Progress) -> Outcome:
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
