r"""The duality gap of a linear model: a bound on how far from optimal it is.

The dual of the primal in ``_problem.py``, times S, has one :math:`\beta_i` in dom Ω a row:

.. math:: D(\beta) = \sum_i w_i (\Omega(y_i) - \Omega(\beta_i)) - \frac{C}{2} \Big\| \sum_i w_i x_i
    (y_i - \beta_i)^\top \Big\|^2, \qquad \sum_i w_i (y_i - \beta_i) = 0 \text{ with an intercept}

A :math:`\beta` that misses the last condition by :math:`r` is mended first: with :math:`\bar\beta`
the weighted mean and :math:`S` the weights' sum, :math:`(1 - \epsilon) \beta_i + \epsilon q` with
:math:`q = \bar\beta + r / (\epsilon S)` meets it, and is in the simplex if :math:`\epsilon \geq
\max_k -r_k / (S \bar\beta_k)`, which is small when :math:`r` is.
"""

from __future__ import annotations

from typing import Any

from fenchel.estimators._problem import FitProblem
from fenchel.estimators._sklearn import np

_ROUNDING = 64 * float(np.finfo(np.float64).eps)


def duality_gap(
    problem: FitProblem, W: Any, b: Any, missing: Any, beta: Any = None
) -> tuple[float, float]:
    """F(W, b) − D(β)/S, and F(W, b); by default β is the prediction of the model.

    ``missing`` is r / S, which is 0 without an intercept.
    """
    epsilon, mixed = _mend(problem.target_mean - missing, missing)
    loss = problem.constant
    conjugate = np.zeros((problem.features, problem.classes))
    entropy = -problem.constant
    for rows, part, scores in problem.scores(W, b):
        p = problem.oracle.predict(scores)
        loss += problem.loss_of(scores, p, rows)
        point = p if beta is None else beta[rows].copy()
        if epsilon:
            point *= 1 - epsilon
            point += epsilon * mixed
        entropy += problem.weighted(problem.oracle.omega(point), rows)
        problem.residual(point, rows)
        conjugate += part.T @ point
    primal = loss + 0.5 / problem.C * float(np.vdot(W, W))
    dual = -entropy - 0.5 * problem.C * float(np.vdot(conjugate, conjugate))
    return max(0.0, (primal - dual) / problem.total), primal / problem.total


def _mend(mean: Any, missing: Any) -> tuple[float, Any]:
    """(ε, q) that make β, with that mean, meet the condition of the intercept."""
    low = (missing < 0) & (mean > 0)
    epsilon = min(1.0, float((-missing[low] / mean[low]).max(initial=0.0)))
    if epsilon <= _ROUNDING:  # nothing is missing but digits
        return 0.0, mean
    mixed = np.maximum(mean + missing / epsilon, 0.0)
    return epsilon, mixed / mixed.sum()


def is_rounding(gap: float, value: float) -> bool:
    """Whether a gap is no more than what float64 makes of an objective of that value."""
    return gap <= _ROUNDING * max(1.0, abs(value))
