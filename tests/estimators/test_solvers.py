"""The two solvers: against each other, LogisticRegression, finite differences and the gap."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import fenchel as fy
from fenchel.estimators import FenchelYoungClassifier, LabelProportionEstimator
from fenchel.estimators._oracle import Oracle
from fenchel.solvers.dual_ascent import choose_block
from fenchel.solvers.linear_model import FitProblem, Targets, duality_gap

OMEGAS = [
    fy.Shannon(),
    fy.Tsallis(1.3),
    fy.Tsallis(1.5),
    fy.Gini(),
    fy.Tsallis(3.0),
    0.5 * fy.Gini(),
    2 * fy.Tsallis(1.5),
    fy.Norm(2.0),
    fy.SquaredNorm(1.5),
    fy.Renyi(0.5),
    fy.FusedLasso(0.2),
]
EXACT = [omega for omega in OMEGAS if Oracle(omega).alpha is not None]
omegas = pytest.mark.parametrize("omega", OMEGAS, ids=repr)
exact = pytest.mark.parametrize("omega", EXACT, ids=repr)


@pytest.fixture(scope="module")
def data():
    return make_classification(60, 6, n_informative=4, n_classes=3, random_state=0)


def distributions(rng, n, classes):
    q = rng.dirichlet(np.ones(classes), n)
    q[rng.random((n, classes)) < 0.4] = 0.0
    q[:, 0] += q.sum(1) == 0
    return q / q.sum(1, keepdims=True)


def problem(omega, *, soft, weighted=True, sparse=False, intercept=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    X[np.abs(X) < 0.5] = 0.0
    values = distributions(rng, 40, 4) if soft else rng.integers(0, 4, 40)
    weights = rng.random(40) if weighted else None
    X = scipy.sparse.csr_matrix(X) if sparse else X
    return FitProblem(X, Targets(values, 4), weights, Oracle(omega), 0.7, intercept)


@omegas
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "distributions"])
def test_value_is_the_definition(omega, soft):
    it = problem(omega, soft=soft)
    rng = np.random.default_rng(1)
    at = rng.normal(size=6 * 4)
    value, _ = it.value_and_gradient(at)
    W, b = it.unpack(at)
    scores = torch.from_numpy(it.X @ W + b)
    target = torch.from_numpy(it.targets.dense(slice(0, 40)))
    losses = omega.loss(scores, target).numpy()
    expected = (it.weights @ losses + (W**2).sum() / (2 * it.C)) / it.weights.sum()
    assert value == pytest.approx(expected, abs=1e-12)


@omegas
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("intercept", [False, True], ids=["origin", "intercept"])
def test_gradient_is_that_of_the_value(omega, sparse, intercept):
    it = problem(omega, soft=True, sparse=sparse, intercept=intercept)
    rng = np.random.default_rng(2)
    at = rng.normal(size=(5 + intercept) * 4)
    direction = rng.normal(size=at.size)
    _, gradient = it.value_and_gradient(at)
    step = 1e-5
    ahead, _ = it.value_and_gradient(at + step * direction)
    behind, _ = it.value_and_gradient(at - step * direction)
    assert gradient @ direction == pytest.approx((ahead - behind) / (2 * step), abs=2e-7)


def test_blocks_of_rows_do_not_matter(monkeypatch):
    whole = problem(fy.Tsallis(1.5), soft=True)
    monkeypatch.setattr("fenchel.solvers.linear_model._BLOCK", 1)
    monkeypatch.setattr("fenchel.solvers.linear_model._LEAST", 7)
    split = problem(fy.Tsallis(1.5), soft=True)
    assert len(whole.blocks) == 1 and len(split.blocks) == 6
    at = np.random.default_rng(3).normal(size=24)
    for a, b in zip(whole.value_and_gradient(at), split.value_and_gradient(at), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@omegas
@pytest.mark.parametrize("intercept", [False, True], ids=["origin", "intercept"])
def test_gap_bounds_the_distance_to_the_optimum(omega, intercept):
    it = problem(omega, soft=True, intercept=intercept)
    rng = np.random.default_rng(4)
    model = LabelProportionEstimator(omega, C=0.7, tol=1e-10, fit_intercept=intercept)
    model.fit(it.X, it.targets.values, sample_weight=it.weights)
    best = np.vstack([model.coef_.T, model.intercept_[None]])[: 5 + intercept]
    optimum, _ = it.value_and_gradient(best.ravel())
    for scale in (0.0, 0.1, 1.0):
        at = best.ravel() + scale * rng.normal(size=best.size)
        value, gradient = it.value_and_gradient(at)
        missing = -gradient[-4:] if intercept else np.zeros(4)
        gap, again = duality_gap(it, *it.unpack(at), missing)
        assert again == pytest.approx(value, abs=1e-12)
        assert gap >= value - optimum - 1e-12
        if scale == 0.0:
            assert gap < 1e-6


@exact
def test_block_is_the_maximum(omega):
    """Against FISTA on the same objective, and no better than it anywhere around."""
    rng = np.random.default_rng(5)
    block = choose_block(Oracle(omega))
    for sigma in (1e-3, 1.0, 50.0):
        theta, old = 3 * rng.normal(size=6), distributions(rng, 1, 6)[0]
        beta = block(theta, old, sigma)
        before = torch.from_numpy(old)

        def penalized(p, sigma=sigma, before=before):
            return omega(p) + 0.5 * sigma * ((p - before) ** 2).sum(-1)

        solution = fy.solvers.regularized_argmax(
            penalized, torch.from_numpy(theta)[None], tol=1e-13, max_iter=5000
        )
        assert beta.min() >= 0 and beta.sum() == pytest.approx(1, abs=1e-14)
        np.testing.assert_allclose(beta, solution.p[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("omega", [o for o in OMEGAS if o not in EXACT], ids=repr)
def test_line_search_ascends(omega):
    rng = np.random.default_rng(6)
    block = choose_block(Oracle(omega))

    def value(theta, beta, old, sigma):
        return float(
            theta @ beta - omega(torch.from_numpy(beta)) - sigma / 2 * ((beta - old) ** 2).sum()
        )

    for sigma in (0.1, 5.0):
        theta, old = 2 * rng.normal(size=5), distributions(rng, 1, 5)[0]
        new = block(theta, old, sigma)
        towards = omega.predict(torch.from_numpy(theta)).numpy()
        others = [
            value(theta, old + s * (towards - old), old, sigma) for s in np.linspace(0, 1, 201)
        ]
        assert value(theta, new, old, sigma) >= max(others) - 1e-9
        assert value(theta, new, old, sigma) > others[0]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("intercept", [False, True], ids=["origin", "intercept"])
def test_shannon_is_logistic_regression(classes, intercept):
    X, y = make_classification(200, 10, n_informative=6, n_classes=classes, random_state=1)
    weights = np.random.default_rng(0).random(200)
    options = {"C": 0.5, "tol": 1e-10, "fit_intercept": intercept, "max_iter": 5000}
    ours = FenchelYoungClassifier("shannon", **options).fit(X, y, weights)
    theirs = LogisticRegression(**options).fit(X, y, weights)
    assert ours.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(
        ours.decision_function(X) - ours.decision_function(X).mean(-1, keepdims=True),
        theirs.decision_function(X) - theirs.decision_function(X).mean(-1, keepdims=True),
        atol=1e-5,
    )


def both(omega, X, y, estimator=FenchelYoungClassifier, weights=None, **options):
    primal = estimator(omega, tol=1e-10, max_iter=5000, **options)
    dual = estimator(omega, tol=1e-12, max_iter=5000, solver="dual", random_state=0, **options)
    return primal.fit(X, y, sample_weight=weights), dual.fit(X, y, sample_weight=weights)


def assert_same_model(primal, dual):
    np.testing.assert_allclose(primal.coef_, dual.coef_, atol=1e-6)
    # A common change of all intercepts changes no prediction.
    b, c = primal.intercept_, dual.intercept_
    if len(b) > 1:
        b, c = b - b.mean(), c - c.mean()
    np.testing.assert_allclose(b, c, atol=2e-6)
    assert dual.dual_gap_ <= 1e-12


@pytest.mark.parametrize("omega", EXACT[:4], ids=repr)
@pytest.mark.parametrize("intercept", [False, True], ids=["origin", "intercept"])
def test_primal_and_dual_agree(omega, intercept, data):
    X, y = data
    assert_same_model(*both(omega, X, y, C=0.1, fit_intercept=intercept))


@pytest.mark.parametrize("omega", [fy.Norm(2.0), 2 * fy.Gini()], ids=repr)
def test_primal_and_dual_agree_for_other_omegas(omega, data):
    X, y = data
    assert_same_model(*both(omega, X[:30], y[:30], C=0.05, fit_intercept=False))


def test_primal_and_dual_agree_on_sparse_weighted_distributions():
    rng = np.random.default_rng(7)
    X = scipy.sparse.random(50, 8, density=0.4, random_state=0, format="csr")
    q, weights = distributions(rng, 50, 3), rng.integers(0, 3, 50).astype(float)
    models = both("gini", X, q, LabelProportionEstimator, weights)
    assert_same_model(*models)
    dense = both("gini", X.toarray(), q, LabelProportionEstimator, weights)
    np.testing.assert_allclose(models[1].coef_, dense[1].coef_, atol=1e-6)


def test_dual_counts_a_weight_as_repetition(data):
    X, y = data[0][:20], data[1][:20]
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    options = {"solver": "dual", "C": 0.1, "tol": 1e-14, "random_state": 0}
    weighted = FenchelYoungClassifier("gini", **options).fit(X, y, counts)
    repeated = FenchelYoungClassifier("gini", **options).fit(X.repeat(counts, 0), y.repeat(counts))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-7)


def test_lbfgs_with_features_of_all_sizes(data):
    """Correlated features, of sizes from 1e-3 to 1e3: no more iterations than plain ones need."""
    X, y = data
    mixed = X @ np.diag([1e-3, 1e-2, 0.1, 10.0, 100.0, 1000.0]) + 50.0
    model = FenchelYoungClassifier("gini", C=1e4, tol=1e-6).fit(mixed, y)
    plain = FenchelYoungClassifier("gini", C=1e4, tol=1e-6).fit(X, y)
    assert model.n_iter_ < 2 * plain.n_iter_ + 20
    sparse = FenchelYoungClassifier("gini", tol=1e-9).fit(scipy.sparse.csr_array(X), y)
    dense = FenchelYoungClassifier("gini", tol=1e-9).fit(X, y)  # of these only one is changed
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-5)
    assert dense.n_iter_ < sparse.n_iter_


def test_dual_far_from_the_origin(data):
    X, y = data
    near, far = (
        FenchelYoungClassifier("gini", C=0.1, solver="dual", tol=1e-10, random_state=0).fit(Z, y)
        for Z in (X, X + 1000.0)
    )
    np.testing.assert_allclose(near.coef_, far.coef_, atol=1e-6)
    np.testing.assert_allclose(near.predict_proba(X), far.predict_proba(X + 1000.0), atol=1e-6)


def test_dual_with_rows_of_zeros_and_no_intercept():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    y = [0, 1, 2, 1]
    assert_same_model(*both("shannon", X, y, fit_intercept=False))


@pytest.mark.parametrize("solver", ["lbfgs", "dual"])
def test_early_stop_warns_with_the_gap(solver, data):
    model = FenchelYoungClassifier("gini", C=100.0, solver=solver, max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(*data)
    assert str(caught[0].message) == (
        f"FenchelYoungClassifier: stopped after 2 iterations with a duality gap of "
        f"{model.dual_gap_:.2g} (tol=0.0001); raise `max_iter`, scale the features of X, or lower "
        "`C`."
    )
    assert model.n_iter_ == 2 and 1e-4 < model.dual_gap_ < math.inf


@pytest.mark.parametrize("solver", ["lbfgs", "dual"])
def test_verbose_prints_progress(solver, data, capsys, monkeypatch):
    X, y = data[0][:20], data[1][:20]
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("fenchel.estimators._base.time", clock)
    FenchelYoungClassifier("gini", solver=solver).fit(X, y)
    assert capsys.readouterr().out == ""
    FenchelYoungClassifier("gini", solver=solver, verbose=1).fit(X, y)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("FenchelYoungClassifier: ") and "gap" in line
    model = FenchelYoungClassifier("gini", solver=solver, verbose=2, random_state=0).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) == model.n_iter_ + 1
    clock.monotonic = iter(range(10**6)).__next__  # a second a look
    FenchelYoungClassifier("gini", solver=solver, verbose=1, random_state=0).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) == model.n_iter_ + 1


def test_every_argument_of_the_solvers_counts(data):
    X, y = data

    def fit(**options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return FenchelYoungClassifier(**options).fit(X, y)

    base = fit()
    for change in (
        {"omega": "gini"},
        {"alpha": 1.7},
        {"C": 0.1},
        {"fit_intercept": False},
        {"tol": 1e-1},
        {"max_iter": 1},
        {"class_weight": {0: 5.0}},
        {"class_weight": "balanced"} if len(set(np.bincount(y))) > 1 else {"C": 2.0},
    ):
        assert np.abs(fit(**change).coef_ - base.coef_).max() > 1e-6, change
    first, second = (fit(solver="dual", tol=1e-1, random_state=seed).coef_ for seed in (0, 1))
    assert np.abs(first - second).max() > 0
