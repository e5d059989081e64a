r"""Better conditioned parameters for L-BFGS: :math:`V = A^\top W` with :math:`A A^\top = H`.

At :math:`W = 0` a loss with a map that is symmetric in the classes has the Hessian

.. math:: H = \frac{1}{S} X^\top \mathrm{diag}(w) X + \frac{K}{C S} I

in each class, up to a factor and the ties between classes. In V features that are correlated, or of
different sizes, no longer cost iterations.
"""

from __future__ import annotations

from typing import Any

from fenchel.estimators._problem import FitProblem
from fenchel.estimators._sklearn import LinAlgError, np, solve_triangular, sparse

_MOST_FEATURES = 1024
_COSTS_AT_MOST = 8  # products of X and W


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
