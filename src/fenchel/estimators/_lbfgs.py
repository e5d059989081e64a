"""L-BFGS on the primal."""

from __future__ import annotations

from typing import Any

from fenchel.estimators._gap import duality_gap, is_rounding
from fenchel.estimators._outcome import Outcome, Progress
from fenchel.estimators._problem import Problem
from fenchel.estimators._sklearn import minimize, np

_EPS = float(np.finfo(np.float64).eps)


def solve_primal(problem: Problem, tol: float, max_iter: int, progress: Progress) -> Outcome:
    """Minimize until the largest entry of the gradient is at most ``tol``."""
    start = np.zeros((problem.features + problem.fit_intercept) * problem.classes)
    count = 0

    def report(intermediate_result: Any) -> None:
        nonlocal count
        count += 1
        progress(f"iteration {count}, objective {intermediate_result.fun:.6g}")

    result = minimize(
        problem.value_and_gradient,
        start,
        method="L-BFGS-B",
        jac=True,
        callback=report if progress.verbose else None,
        options={
            "maxiter": max_iter,
            "maxfun": 20 * max_iter,
            "gtol": tol,
            "ftol": 64 * _EPS,
            "maxls": 50,
        },
    )
    W, b = problem.unpack(result.x)
    largest = float(np.abs(result.jac).max(initial=0.0))
    missing = -result.jac[-problem.classes :] if problem.fit_intercept else 0.0 * b
    gap, _ = duality_gap(problem, W, b, missing)
    # Rounding can end the line search of a fit that is as good as it gets.
    converged = result.status == 0 or largest <= tol or is_rounding(gap, result.fun)
    reason = "stopped" if result.status == 1 else "the line search found no better point"
    progress(f"{result.nit} iterations, objective {result.fun:.6g}, gap {gap:.2g}", final=True)
    return Outcome(W, b, max(1, int(result.nit)), gap, converged, reason)
