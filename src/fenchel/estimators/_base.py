from __future__ import annotations

import time
import warnings
from typing import Any

from fenchel._checks import FenchelError, check_at_least, check_choice, check_number, check_positive
from fenchel.estimators._oracle import Oracle, choose_omega
from fenchel.estimators._sklearn import (
    BaseEstimator,
    ConvergenceWarning,
    check_is_fitted,
    check_random_state,
    check_sample_weight,
    np,
    sparse,
    validate_data,
)
from fenchel.solvers.dual_ascent import solve_dual
from fenchel.solvers.lbfgs import solve_primal
from fenchel.solvers.linear_model import FitProblem, Outcome, Targets

_SOLVERS = ("lbfgs", "dual")


class LinearModel(BaseEstimator):
    """Scores that are linear in the features, trained with a Fenchel-Young loss.

    What the three estimators share; it is not public itself.
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
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.omega = omega
        self.alpha = alpha
        self.C = C
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.random_state = random_state

    def decision_function(self, X: Any) -> Any:
        """The scores θ = X Wᵀ + b, shape (n, classes); (n) for two classes."""
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    # ------------------------------------------------------------------ the same for all

    def _fit_targets(self, X: Any, targets: Targets, weights: Any) -> None:
        """Fit on checked data, and keep the result."""
        name = type(self).__name__
        oracle = Oracle(choose_omega(name, self.omega, self.alpha))
        C = check_positive(name, "C", self.C, float("inf"), "a number above 0")
        tol = check_number(name, "tol", self.tol, 0.0, "(the gradient or gap to stop at)")
        max_iter = check_at_least(name, "max_iter", self.max_iter, 1)
        check_choice(name, "solver", self.solver, _SOLVERS)
        two = targets.classes == 2 and not self._keeps_all_scores()
        # Two classes have one vector w = w₂ − w₁; penalizing it means half the C for w₁ = −w₂.
        dual, center = self.solver == "dual", None
        if dual and self.fit_intercept and not sparse.issparse(X):
            center = np.average(X, axis=0, weights=weights)  # b takes it up: the same problem,
            X = X - center  # but rows that are far from the origin no longer look alike
        problem = FitProblem(
            X, targets, weights, oracle, C / 2 if two else C, bool(self.fit_intercept)
        )
        progress = Progress(name, self.verbose)
        if dual:
            rng = check_random_state(self.random_state)
            outcome = solve_dual(problem, tol, max_iter, progress, rng)
        else:
            outcome = solve_primal(problem, tol, max_iter, progress)
        W, b = np.ascontiguousarray(outcome.W.T), outcome.b.copy()
        if center is not None:
            b -= W @ center
        self.coef_ = W[1:] - W[:1] if two else W
        self.intercept_ = b[1:] - b[:1] if two else b
        self.n_iter_ = outcome.iterations
        self.dual_gap_ = outcome.gap
        self.omega_ = oracle.regularizer
        warn_if_early(name, outcome, tol)

    def _keeps_all_scores(self) -> bool:
        """Whether two classes have two scores; else the second one's minus the first one's."""
        return False

    def _check_X(self, X: Any, *, reset: bool) -> Any:
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False
        )
        check_finite(type(self).__name__, X)
        return X

    def _check_X_y(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Checked X, and y of as many rows, one- or two-dimensional."""
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=np.float64,
            multi_output=True,
            ensure_all_finite=False,
        )
        check_finite(type(self).__name__, X)
        return X, y

    def _check_weights(self, sample_weight: Any, X: Any) -> Any:
        """Weights of the rows, or None if all are 1."""
        if sample_weight is None:
            return None
        weights = check_sample_weight(sample_weight, X, dtype=np.float64)
        if weights.min() < 0 or not weights.sum() > 0:
            raise FenchelError(
                f"{type(self).__name__}: expected `sample_weight` of at least 0 with a sum above "
                f"0, but they are from {weights.min():g} to {weights.max():g}."
            )
        return weights

    def _scores(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._check_X(X, reset=False)
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def _distribution(self, X: Any, inverse_temperature: float = 1.0) -> Any:
        """The map of the scores times ``inverse_temperature``, shape (n, classes)."""
        scores = self._scores(X)
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        return Oracle(self.omega_).predict(np.ascontiguousarray(scores * inverse_temperature))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


def check_finite(name: str, X: Any) -> None:
    """Refuse NaN and infinite features, naming the first of them."""
    values = X.data if sparse.issparse(X) else X
    with np.errstate(all="ignore"):
        if np.isfinite(values.sum()) or np.isfinite(values).all():
            return
    if sparse.issparse(X):
        X = X.tocoo()
        at = int(np.flatnonzero(~np.isfinite(X.data))[0])
        row, column, value = int(X.row[at]), int(X.col[at]), X.data[at]
    else:
        row, column = (int(at[0]) for at in np.nonzero(~np.isfinite(X)))
        value = X[row, column]
    got = "NaN" if np.isnan(value) else str(value)
    raise FenchelError(
        f"{name}: expected finite numbers in `X`, but got {got} in row {row}, column {column}; "
        "impute it or drop the row."
    )


class Progress:
    """A line on standard output, at most one a second; ``verbose=2`` prints every iteration."""

    def __init__(self, name: str, verbose: Any) -> None:
        self.name = name
        self.verbose = int(verbose)
        self._start = self._last = time.monotonic()

    def __call__(self, text: str, *, final: bool = False) -> None:
        now = time.monotonic()
        if self.verbose and (final or self.verbose > 1 or now - self._last >= 1.0):
            self._last = now
            print(f"{self.name}: {text}, {now - self._start:.1f} s", flush=True)


def warn_if_early(name: str, outcome: Outcome, tol: float) -> None:
    """Warn, with the gap and the remedy, of a solver that stopped before ``tol``."""
    if not outcome.converged:
        warnings.warn(
            f"{name}: {outcome.reason} after {outcome.iterations} iterations with a duality gap of "
            f"{outcome.gap:.2g} (tol={tol:g}); raise `max_iter`, scale the features of X, or lower "
            "`C`.",
            ConvergenceWarning,
            stacklevel=4,
        )
