from __future__ import annotations

from typing import Any

from fenchel._checks import FenchelError
from fenchel.estimators._base import LinearModel
from fenchel.estimators._sklearn import ClassifierTags, np, rel_entr, sparse, type_of_target
from fenchel.solvers.linear_model import Targets

#: How far from 1 the sum of a row of proportions may be.
_SUM_TOL = 1e-6


class LabelProportionEstimator(LinearModel):
    r"""Distributions over labels, estimated with a Fenchel-Young loss.

    .. math:: \min_{W, b}\ C \sum_i w_i L_\Omega(W x_i + b; q_i) + \tfrac{1}{2} \|W\|^2

    The target :math:`q_i` of a row is a distribution: topics of a document, votes of a jury, shares
    of a budget. The loss is 0 exactly where the prediction is the target. A sparse Ω (Tsallis's,
    Gini's) can predict that a label has no share at all; Shannon's cannot.

    Args:
        omega, alpha, C, fit_intercept, solver, tol, max_iter, verbose, random_state: see
            :class:`FenchelYoungClassifier`.

    Attributes:
        labels_: 0, 1, ..., or the classes, if ``y`` was of classes.
        coef_: W, shape (labels, features).
        intercept_: b, shape (labels).
        n_iter_: iterations, or passes.
        dual_gap_: how far from optimal the objective is at most.
        omega_: the regularizer.

    Example:
        >>> from fenchel.estimators import LabelProportionEstimator
        >>> X = [[0.0], [1.0], [2.0], [3.0]]
        >>> y = [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]
        >>> model = LabelProportionEstimator(omega="gini", C=1e6, tol=1e-8).fit(X, y)
        >>> model.predict([[0.4], [2.0]]).round(3)
        array([[0.9, 0.1, 0. ],
               [0.5, 0.5, 0. ]])

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016, sections 3.4 and 4.1.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LabelProportionEstimator:
        """Fit the model.

        Args:
            X: features, shape (n, features), dense or sparse.
            y: distributions, shape (n, labels): numbers of at least 0, rows that sum to 1. Classes,
                shape (n), are taken too, as distributions with all mass on one label, in the order
                of their sorted values.
            sample_weight: weights of the rows, at least 0.
        """
        X, y = self._check_X_y(X, y)
        weights = self._check_weights(sample_weight, X)
        targets = self._targets(y)
        self._fit_targets(X, targets, weights)
        return self

    def predict(self, X: Any) -> Any:
        """What ``y`` was: the distribution of every row, or its most probable class."""
        p = self.predict_proba(X)
        return self.labels_[p.argmax(1)] if self._of_classes else p

    def predict_proba(self, X: Any) -> Any:
        """The distribution of every row, shape (n, labels), zeros being exact."""
        return self._distribution(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean Jensen-Shannon divergence from ``y``, in nats: 0 at best, −log 2 at worst.

        Args:
            X: features, shape (n, features).
            y: distributions, shape (n, labels).
            sample_weight: weights of the rows.
        """
        p = self.predict_proba(X)
        y = y if sparse.issparse(y) else np.asarray(y)
        if y.ndim == 1:
            y = y[:, None] == self.labels_
        q = _proportions(type(self).__name__, y)
        if q.shape != p.shape:
            raise FenchelError(
                f"{type(self).__name__}: expected `y` of shape {p.shape}, but got {q.shape}."
            )
        middle = 0.5 * (p + q)
        rows = 0.5 * (rel_entr(p, middle) + rel_entr(q, middle)).sum(1)
        return -float(np.average(rows, weights=sample_weight))

    def _keeps_all_scores(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.classifier_tags = ClassifierTags()  # it has predict_proba
        return tags

    def _targets(self, y: Any) -> Targets:
        name = type(self).__name__
        self._of_classes = not sparse.issparse(y) and (y.ndim == 1 or y.shape[1] == 1)
        if self._of_classes:
            y = y.ravel()
            kind = type_of_target(y)
            if kind not in ("binary", "multiclass"):
                raise FenchelError(
                    f"{name}: expected `y` of distributions, shape (n, labels), or of classes, but "
                    f"got one column of Unknown label type: {kind}; give the share of every label."
                )
            self.labels_, index = np.unique(y, return_inverse=True)
            if len(self.labels_) < 2:
                raise FenchelError(f"{name}: expected at least 2 labels in `y`, but got one class.")
            return Targets(index, len(self.labels_))
        q = _proportions(name, y)
        self.labels_ = np.arange(q.shape[1])
        return Targets(q, q.shape[1])


def _proportions(name: str, y: Any) -> Any:
    """Checked distributions, rows that sum to 1 to the last digit."""
    y = y.toarray() if sparse.issparse(y) else np.asarray(y)
    try:
        y = y.astype(np.float64)
    except (TypeError, ValueError):
        raise FenchelError(
            f"{name}: expected `y` of numbers, one proportion per label, but got dtype {y.dtype}."
        ) from None
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y).all(1))[0])
        raise FenchelError(
            f"{name}: expected finite proportions in `y`, but row {row} has NaN or inf; drop it."
        )
    if y.min() < 0:
        row = int(np.flatnonzero((y < 0).any(1))[0])
        raise FenchelError(
            f"{name}: expected proportions of at least 0 in `y`, but row {row} has "
            f"{y[row].min():g}."
        )
    totals = y.sum(1)
    wrong = np.flatnonzero(np.abs(totals - 1) > _SUM_TOL)
    if wrong.size:
        raise FenchelError(
            f"{name}: expected rows of `y` that sum to 1, but row {wrong[0]} sums to "
            f"{totals[wrong[0]]:g}; divide each row by its sum."
        )
    return y / totals[:, None]
