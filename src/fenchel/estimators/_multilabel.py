from __future__ import annotations

from typing import Any

from fenchel._checks import FenchelError, check_choice, check_number, check_positive
from fenchel.estimators._classifier import FenchelYoungClassifier
from fenchel.estimators._oracle import Oracle
from fenchel.estimators._sklearn import check_is_fitted, np, sparse, type_of_target
from fenchel.solvers.linear_model import Targets

_UNLABELED = ("error", "drop", "uniform")


class FenchelYoungMultilabelClassifier(FenchelYoungClassifier):
    r"""Sets of labels with a Fenchel-Young loss: the support of the prediction is the set.

    A set of labels is the uniform distribution over them, and the model is trained as
    :class:`FenchelYoungClassifier` is. Label k is predicted where

    .. math:: \hat y_\Omega(t \theta)_k > p_0

    with an inverse temperature t, which makes the sets of a sparse Ω smaller as it grows, and a
    threshold :math:`p_0`: 0 for a sparse Ω, and for one without zeros (Shannon's) 1 / classes. Both
    matter to predictions alone: they can be set after the fit, and tuned on held-out data without
    another.

    One-dimensional ``y`` is taken as classes; the estimator then is a
    :class:`FenchelYoungClassifier`.

    Args:
        omega: see :class:`FenchelYoungClassifier`.
        inverse_temperature: t, a number above 0.
        threshold: :math:`p_0`, in [0, 1), or None for the default.
        unlabeled: what to do with rows without a label: ``"error"`` refuses them, ``"drop"`` leaves
            them out, ``"uniform"`` takes the uniform distribution over all labels.
        alpha, C, fit_intercept, solver, tol, max_iter, class_weight, verbose, random_state: see
            :class:`FenchelYoungClassifier`; ``class_weight`` is for one-dimensional ``y``.

    Example:
        >>> from fenchel.estimators import FenchelYoungMultilabelClassifier
        >>> X = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
        >>> y = [[0, 1, 0], [1, 0, 0], [1, 1, 0]]
        >>> model = FenchelYoungMultilabelClassifier(omega="gini", C=100.0).fit(X, y)
        >>> model.predict_proba([[0.0, 1.0], [0.9, 1.0]]).round(2)  # one is 0.005
        array([[0.  , 1.  , 0.  ],
               [0.45, 0.55, 0.  ]])
        >>> model.set_params(inverse_temperature=1.5).predict([[0.0, 1.0], [0.9, 1.0]])
        array([[0, 1, 0],
               [1, 1, 0]])

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016, sections 3.4 and 4.2.
    """

    def __init__(
        self,
        omega: Any = "tsallis",
        *,
        inverse_temperature: float = 1.0,
        threshold: float | None = None,
        unlabeled: str = "error",
        alpha: float = 1.5,
        C: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "lbfgs",
        tol: float = 1e-4,
        max_iter: int = 1000,
        class_weight: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            omega,
            alpha=alpha,
            C=C,
            fit_intercept=fit_intercept,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            class_weight=class_weight,
            verbose=verbose,
            random_state=random_state,
        )
        self.inverse_temperature = inverse_temperature
        self.threshold = threshold
        self.unlabeled = unlabeled

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FenchelYoungMultilabelClassifier:
        """Fit the model.

        Args:
            X: features, shape (n, features), dense or sparse.
            y: 0 or 1 for every label, shape (n, labels), dense or sparse; or classes, shape (n).
            sample_weight: weights of the rows, at least 0.
        """
        name = type(self).__name__
        check_choice(name, "unlabeled", self.unlabeled, _UNLABELED)
        self._cut()
        X, y = self._check_X_y(X, y)
        if y.ndim == 1 or y.shape[1] == 1:
            self.multilabel_ = False
            self._fit_classes(X, y, sample_weight)
            return self
        kind = type_of_target(y)
        if kind != "multilabel-indicator":
            raise FenchelError(
                f"{name}: expected `y` to be classes, shape (n), or 0 and 1 for every label, shape "
                f"(n, labels), but got Unknown label type: {kind}."
            )
        if self.class_weight is not None:
            raise FenchelError(
                f"{name}: expected no `class_weight` with sets of labels; use `sample_weight`."
            )
        weights = self._check_weights(sample_weight, X)
        q, keep = _label_sets(name, y, self.unlabeled)
        if keep is not None:
            X, weights = X[keep], None if weights is None else weights[keep]
        self.multilabel_ = True
        self.classes_ = np.arange(q.shape[1])
        self._fit_targets(X, Targets(q, q.shape[1]), weights)
        return self

    def predict(self, X: Any) -> Any:
        """0 or 1 for every label, shape (n, labels); classes if the model was fit on classes."""
        check_is_fitted(self)
        if not self.multilabel_:
            return super().predict(X)
        _, p0 = self._cut()
        if p0 is None:
            p0 = 0.0 if Oracle(self.omega_).is_sparse else 1.0 / len(self.classes_)
        return (self.predict_proba(X) > p0).astype(int)

    def predict_proba(self, X: Any) -> Any:
        """The distribution over labels, with t applied, shape (n, labels), zeros being exact.

        It sums to 1: it says how the labels share the row, not how likely each of them is.
        """
        check_is_fitted(self)
        t, _ = self._cut()
        return self._distribution(X, t if self.multilabel_ else 1.0)

    def _cut(self) -> tuple[float, float | None]:
        """t and the threshold, checked."""
        name = type(self).__name__
        t = check_positive(
            name, "inverse_temperature", self.inverse_temperature, 1e300, "a number above 0"
        )
        if self.threshold is None:
            return t, None
        p0 = check_number(name, "threshold", self.threshold, 0.0, "and below 1")
        if p0 >= 1:
            raise FenchelError(f"{name}: `threshold` must be at least 0 and below 1; got {p0:g}.")
        return t, p0

    def _keeps_all_scores(self) -> bool:
        return self.multilabel_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _label_sets(name: str, y: Any, unlabeled: str) -> tuple[Any, Any]:
    """An indicator matrix as uniform distributions, and which rows are kept (None = all)."""
    y = y.toarray() if sparse.issparse(y) else np.asarray(y)
    y = y.astype(np.float64)
    sizes = y.sum(1, keepdims=True)
    empty = np.flatnonzero(sizes == 0)
    keep = None
    if empty.size:
        if unlabeled == "error":
            more = f" and {empty.size - 1} more" if empty.size > 1 else ""
            raise FenchelError(
                f"{name}: expected at least one label in every row of `y`, but row {empty[0]}"
                f"{more} has none; drop such rows, or ask for unlabeled='drop' or 'uniform'."
            )
        if unlabeled == "drop":
            keep = sizes[:, 0] > 0
            if not keep.any():
                raise FenchelError(f"{name}: expected labels in `y`, but no row has any.")
            y, sizes = y[keep], sizes[keep]
        else:
            y[empty], sizes[empty] = 1.0, y.shape[1]
    return y / sizes, keep
