r"""The primal: value and gradient of a regularized linear model, in blocks of rows.

.. math:: F(W, b) = \frac{1}{S} \Big( \sum_i w_i L_\Omega(W^\top x_i + b; y_i) + \frac{1}{2C}
    \|W\|^2 \Big), \qquad S = \sum_i w_i

Scores of one block of rows at a time are in memory; nothing of size rows × classes is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fenchel.estimators._oracle import Oracle
from fenchel.estimators._sklearn import np, sparse
from fenchel.estimators._targets import Targets

_BLOCK = 1 << 16  # scores in a block: half a megabyte stays in the cache
_LEAST = 64  # rows in a block


class FitProblem:
    """Data, targets, weights and Ω of one fit.

    Args:
        X: (n, features), float64, an array or a CSR matrix.
        targets: n rows of the simplex.
        weights: (n) numbers of at least 0, or None for ones.
        oracle: Ω.
        C: the inverse of the penalty's strength.
        fit_intercept: whether there is an unpenalized b.
    """

    def __init__(
        self, X: Any, targets: Targets, weights: Any, oracle: Oracle, C: float, fit_intercept: bool
    ) -> None:
        self.X, self.targets, self.oracle = X, targets, oracle
        self.weights, self.C, self.fit_intercept = weights, C, fit_intercept
        self.n, self.features = X.shape
        self.classes = targets.classes
        self.total = float(self.n if weights is None else weights.sum())
        step = max(_LEAST, _BLOCK // self.classes)
        self.blocks = [slice(at, min(at + step, self.n)) for at in range(0, self.n, step)]
        self.parts = [X[rows] for rows in self.blocks]  # views; copies of a sparse matrix
        self._buffer = np.empty((min(step, self.n), self.classes))
        self.constant = sum(self.weighted(self._target_omega(rows), rows) for rows in self.blocks)
        self.target_mean = sum(self._target_sum(rows) for rows in self.blocks) / self.total

    def _target_omega(self, rows: slice) -> Any:
        if self.targets.are_indices:
            corners = self.oracle.omega(np.eye(self.classes)) if self.oracle.alpha is None else None
            index = self.targets.values[rows]
            return np.zeros(len(index)) if corners is None else corners[index]
        return self.oracle.omega(np.ascontiguousarray(self.targets.values[rows]))

    def _target_sum(self, rows: slice) -> Any:
        weights = None if self.weights is None else self.weights[rows]
        if self.targets.are_indices:
            return np.bincount(self.targets.values[rows], weights, minlength=self.classes)
        values = self.targets.values[rows]
        return values.sum(0) if weights is None else weights @ values

    def weighted(self, values: Any, rows: slice) -> float:
        """Σ w_i v_i over a block."""
        return float(values.sum() if self.weights is None else values @ self.weights[rows])

    def scores(self, W: Any, b: Any) -> Iterator[tuple[slice, Any, Any]]:
        """Blocks of rows: (rows, X of them, their scores), the scores in memory that is reused."""
        for rows, part in zip(self.blocks, self.parts, strict=True):
            if sparse.issparse(part):
                scores = part @ W
            else:
                scores = np.matmul(part, W, out=self._buffer[: part.shape[0]])
            scores += b
            yield rows, part, scores

    def loss_of(self, scores: Any, p: Any, rows: slice) -> float:
        """Σ w_i (Ω*(θ_i) − ⟨y_i, θ_i⟩) over a block."""
        top, above = self.oracle.conjugate(scores, p)
        values = above + (top - self.targets.dot(scores, rows))
        return self.weighted(values, rows)

    def value_and_gradient(self, parameters: Any) -> tuple[float, Any]:
        """F and its gradient at a flat (features + intercept, classes) vector."""
        W, b = self.unpack(parameters)
        gradient = np.zeros((self.features + self.fit_intercept, self.classes))
        loss = self.constant
        for rows, part, scores in self.scores(W, b):
            p = self.oracle.predict(scores)
            loss += self.loss_of(scores, p, rows)
            self.residual(p, rows)
            gradient[: self.features] += part.T @ p
            if self.fit_intercept:
                gradient[-1] += p.sum(0)
        gradient[: self.features] += W / self.C
        value = loss + 0.5 / self.C * float(np.vdot(W, W))
        gradient /= self.total
        return value / self.total, gradient.ravel()

    def residual(self, p: Any, rows: slice) -> None:
        """w_i (p_i − y_i), in the memory of p."""
        self.targets.subtract_from(p, rows)
        if self.weights is not None:
            p *= self.weights[rows, None]

    def unpack(self, parameters: Any) -> tuple[Any, Any]:
        """(W, b) as views of a flat vector."""
        matrix = parameters.reshape(-1, self.classes)
        if self.fit_intercept:
            return matrix[:-1], matrix[-1]
        return matrix, np.zeros(self.classes)
