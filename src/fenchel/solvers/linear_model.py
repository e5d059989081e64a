r"""A linear model trained with a Fenchel-Young loss: primal, dual, and the gap between them.

.. math:: F(W, b) = \frac{1}{S} \Big( \sum_i w_i L_\Omega(W^\top x_i + b; y_i) + \frac{1}{2C}
    \|W\|^2 \Big), \qquad S = \sum_i w_i

Scores of one block of rows at a time are in memory; nothing of size rows × classes is kept.

The duality gap bounds how far from optimal a model is. The dual, times S, has one
:math:`\beta_i` in dom Ω per row:

.. math:: D(\beta) = \sum_i w_i (\Omega(y_i) - \Omega(\beta_i)) - \frac{C}{2} \Big\| \sum_i w_i x_i
    (y_i - \beta_i)^\top \Big\|^2, \qquad \sum_i w_i (y_i - \beta_i) = 0 \text{ with an intercept}

A :math:`\beta` that misses the last condition by :math:`r` is mended first: with :math:`\bar\beta`
the weighted mean and :math:`S` the weights' sum, :math:`(1 - \epsilon) \beta_i + \epsilon q` with
:math:`q = \bar\beta + r / (\epsilon S)` meets it, and is in the simplex if :math:`\epsilon \geq
\max_k -r_k / (S \bar\beta_k)`, which is small when :math:`r` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from fenchel.solvers._scipy import np, sparse

_BLOCK = 1 << 16  # scores in a block: half a megabyte stays in the cache
_LEAST = 64  # rows in a block
_ROUNDING = 64 * float(np.finfo(np.float64).eps)


class LossOracle(Protocol):
    """All that the solvers ask of Ω; arrays are (rows, classes), float64."""

    #: α of a multiple of Tsallis's entropy, and which multiple; None for every other Ω.
    alpha: float | None
    gamma: float

    def predict(self, scores: Any) -> Any:
        """The map of every row, in new memory."""

    def omega(self, p: Any) -> Any:
        """Ω of every row."""

    def slope(self, p: Any) -> Any:
        """∇Ω of every row, up to a constant per row; infinite at the boundary for some Ω."""

    def conjugate(self, scores: Any, p: Any) -> tuple[Any, Any]:
        """(the largest score, Ω*(θ) minus it) of every row, with p the map of the scores."""


class Report(Protocol):
    """Hears how far a solver is."""

    def __call__(self, text: str, *, final: bool = False) -> None: ...


class Targets:
    """Rows of the simplex: class indices (n) or distributions (n, classes)."""

    def __init__(self, values: Any, classes: int) -> None:
        self.values = values
        self.classes = classes
        self.are_indices = values.ndim == 1

    def dense(self, rows: slice) -> Any:
        """Distributions, in new memory, shape (rows, classes)."""
        if not self.are_indices:
            return self.values[rows].copy()
        index = self.values[rows]
        dense = np.zeros((len(index), self.classes))
        dense[np.arange(len(index)), index] = 1.0
        return dense

    def dot(self, scores: Any, rows: slice) -> Any:
        """⟨y, θ⟩ of every row."""
        if self.are_indices:
            return scores[np.arange(len(scores)), self.values[rows]]
        return np.einsum("ij,ij->i", self.values[rows], scores)

    def subtract_from(self, p: Any, rows: slice) -> None:
        """p − y, in the memory of p."""
        if self.are_indices:
            p[np.arange(len(p)), self.values[rows]] -= 1.0
        else:
            p -= self.values[rows]


@dataclass(frozen=True)
class Outcome:
    """Weights (features, classes), intercept (classes), and how far the solver got."""

    W: Any
    b: Any
    iterations: int
    gap: float
    converged: bool
    reason: str = ""


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
        self,
        X: Any,
        targets: Targets,
        weights: Any,
        oracle: LossOracle,
        C: float,
        fit_intercept: bool,
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
