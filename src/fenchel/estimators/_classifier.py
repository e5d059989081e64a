from __future__ import annotations

from typing import Any

from fenchel._checks import FenchelError
from fenchel.estimators._base import LinearModel
from fenchel.estimators._sklearn import (
    ClassifierMixin,
    check_classification_targets,
    column_or_1d,
    compute_class_weight,
    np,
)
from fenchel.solvers.linear_model import Targets


class FenchelYoungClassifier(ClassifierMixin, LinearModel):
    r"""Linear classification with a Fenchel-Young loss and an L2 penalty.

    .. math:: \min_{W, b}\ C \sum_i w_i L_\Omega(W x_i + b; y_i) + \tfrac{1}{2} \|W\|^2

    ``omega="shannon"`` is multinomial logistic regression, with the parameters, the objective and
    the answers of :class:`sklearn.linear_model.LogisticRegression`. With a sparse Ω (Tsallis's,
    the default, and Gini's) ``predict_proba`` has exact zeros, and a row that is right by the
    margin no longer pulls at the model.

    Two solvers find the same model. ``"lbfgs"`` works on the primal, with the whole data in every
    step; take it unless there is a reason not to. ``"dual"`` ascends block by block over one
    :math:`\beta_i` in the simplex a row and stops by the duality gap, a proof of how good the model
    is. Its blocks are solved exactly for Tsallis's family (Shannon's and Gini's included) and
    multiples of it; for every other Ω the step is an exact line search towards the prediction.
    It is written in Python: for thousands of rows, not for millions.

    Args:
        omega: the name of a regularizer (``"tsallis"``, ``"gini"``, ``"shannon"``, ``"norm"``, ...)
            or an object such as ``fy.Norm(2.0)``. Its domain must be the simplex.
        alpha: α of ``"tsallis"``, in [1, ∞); other Ω do not use it.
        C: the inverse of the penalty's strength. A paper's λ with a mean loss is 1 / (C n).
        fit_intercept: whether to learn b, which is not penalized.
        solver: ``"lbfgs"`` or ``"dual"``.
        tol: where to stop: at the largest entry of the gradient for ``"lbfgs"``, at the duality gap
            for ``"dual"``, both of the objective divided by :math:`C \sum_i w_i`.
        max_iter: the most iterations, or passes over the rows.
        class_weight: a dict from classes to weights, ``"balanced"``, or None.
        verbose: 1 prints a line a second and one at the end, 2 one an iteration.
        random_state: the order of the rows in the dual.

    Attributes:
        classes_: the classes, sorted.
        coef_: W, shape (classes, features); (1, features) for two classes.
        intercept_: b, shape (classes) or (1).
        n_iter_: iterations, or passes.
        dual_gap_: how far from optimal the objective (divided as for ``tol``) is at most.
        omega_: the regularizer.

    Example:
        >>> from fenchel.estimators import FenchelYoungClassifier
        >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
        >>> y = ["low", "low", "mid", "mid", "high", "high"]
        >>> model = FenchelYoungClassifier(omega="gini").fit(X, y)
        >>> model.predict_proba([[0.0], [1.4], [5.0]]).round(3)
        array([[0.   , 0.917, 0.083],
               [0.   , 0.567, 0.433],
               [0.917, 0.   , 0.083]])
        >>> model.classes_.tolist()
        ['high', 'low', 'mid']

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016.
    """

    def __init__(
        self,
        omega: Any = "tsallis",
        *,
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
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FenchelYoungClassifier:
        """Fit the model.

        Args:
            X: features, shape (n, features), dense or sparse; float64 is not copied.
            y: classes, shape (n).
            sample_weight: weights of the rows, at least 0.
        """
        X, y = self._check_X_y(X, y)
        self._fit_classes(X, y, sample_weight)
        return self

    def _fit_classes(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Fit on checked X and classes y."""
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise FenchelError(
                f"{type(self).__name__}: expected at least 2 classes in `y`, but got one class, "
                f"{self.classes_[0]!r}."
            )
        weights = self._check_weights(sample_weight, X)
        if self.class_weight is not None:
            of_class = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y, sample_weight=weights
            )
            of_class = self._check_class_weight(of_class)
            weights = of_class[index] * (1.0 if weights is None else weights)
        self._fit_targets(X, Targets(index, len(self.classes_)), weights)

    def _check_class_weight(self, of_class: Any) -> Any:
        """The weights of the classes, each finite and at least 0, and not all of them 0."""
        wrong = ~((of_class >= 0) & (of_class < np.inf))
        if wrong.any() or not of_class.any():
            worst = int(wrong.argmax())
            raise FenchelError(
                f"{type(self).__name__}: expected `class_weight` of at least 0, finite and not all "
                f"0, but class {self.classes_.tolist()[worst]!r} has {of_class[worst]:g}."
            )
        return of_class

    def predict(self, X: Any) -> Any:
        """The class with the best score, shape (n)."""
        scores = self._scores(X)
        best = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Any:
        """The regularized argmax of the scores, shape (n, classes), zeros being exact."""
        return self._distribution(X)
