"""What users of the three estimators see: predictions, arguments, and words for bad input."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fenchel as fy
from fenchel.estimators import (
    FenchelYoungClassifier,
    FenchelYoungMultilabelClassifier,
    LabelProportionEstimator,
)

ALL = [FenchelYoungClassifier, FenchelYoungMultilabelClassifier, LabelProportionEstimator]


@pytest.fixture(scope="module")
def classes():
    return make_classification(120, 8, n_informative=5, n_classes=3, random_state=0)


@pytest.fixture(scope="module")
def sets():
    X, y = make_multilabel_classification(
        150, 10, n_classes=6, n_labels=2, allow_unlabeled=False, random_state=0
    )
    return StandardScaler().fit_transform(X), y


# ---------------------------------------------------------------------- classes


def test_probabilities_are_the_map_of_the_scores(classes):
    X, y = classes
    for name, omega in (("gini", fy.Gini()), ("tsallis", fy.Tsallis(1.5)), ("norm", fy.Norm())):
        model = FenchelYoungClassifier(name).fit(X, y)
        scores = torch.from_numpy(model.decision_function(X))
        np.testing.assert_allclose(model.predict_proba(X), omega.predict(scores), atol=1e-12)
    assert (FenchelYoungClassifier("gini").fit(X, y).predict_proba(X) == 0).any()


def test_two_classes_have_one_score(classes):
    X, y = classes[0], np.where(classes[1] == 0, "yes", "no")
    model = FenchelYoungClassifier("gini", C=10.0).fit(X, y)
    z, p = model.decision_function(X), model.predict_proba(X)
    assert z.shape == (120,) and model.coef_.shape == (1, 8)
    np.testing.assert_allclose(p[:, 1], np.clip((z + 1) / 2, 0, 1), atol=1e-12)
    assert set(model.predict(X)) == {"yes", "no"}
    assert (p == 0).any()


def test_omega_by_name_and_by_object_agree(classes):
    X, y = classes
    by_name = FenchelYoungClassifier("tsallis", alpha=1.7).fit(X, y)
    by_object = FenchelYoungClassifier(fy.Tsallis(1.7)).fit(X, y)
    np.testing.assert_array_equal(by_name.coef_, by_object.coef_)
    assert repr(by_name.omega_) == "Tsallis(alpha=1.7)"


def test_sparse_and_dense_features_agree(classes):
    X, y = classes
    X = np.where(np.abs(X) < 0.7, 0.0, X)
    dense = FenchelYoungClassifier(tol=1e-9).fit(X, y)
    sparse = FenchelYoungClassifier(tol=1e-9).fit(scipy.sparse.csc_array(X), y)
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-5)
    np.testing.assert_allclose(
        dense.predict_proba(X), sparse.predict_proba(scipy.sparse.csr_array(X)), atol=1e-5
    )


def test_features_are_not_changed(classes):
    X, y = classes
    for solver in ("lbfgs", "dual"):
        for order in "CF":
            kept = np.array(X, order=order)
            FenchelYoungClassifier("gini", solver=solver, tol=1e-1).fit(kept, y)
            np.testing.assert_array_equal(kept, X)


def test_class_weight_is_a_sample_weight(classes):
    X, y = classes
    weighted = FenchelYoungClassifier(tol=1e-9, class_weight={0: 3.0}).fit(X, y)
    by_row = FenchelYoungClassifier(tol=1e-9).fit(X, y, np.where(y == 0, 3.0, 1.0))
    np.testing.assert_allclose(weighted.coef_, by_row.coef_, atol=1e-6)


def test_in_a_pipeline_with_a_grid(classes):
    model = make_pipeline(StandardScaler(), FenchelYoungClassifier())
    grid = {"fenchelyoungclassifier__C": [0.01, 1.0], "fenchelyoungclassifier__omega": ["gini"]}
    assert GridSearchCV(model, grid, cv=3).fit(*classes).best_score_ > 0.6


# ---------------------------------------------------------------------- sets of labels


def test_a_set_is_a_uniform_distribution(sets):
    X, y = sets
    model = FenchelYoungMultilabelClassifier("gini").fit(X, y)
    same = LabelProportionEstimator("gini").fit(X, y / y.sum(1, keepdims=True))
    np.testing.assert_allclose(model.coef_, same.coef_, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X) > 0)
    on_sparse = FenchelYoungMultilabelClassifier("gini").fit(X, scipy.sparse.csr_matrix(y))
    np.testing.assert_array_equal(model.coef_, on_sparse.coef_)


def test_inverse_temperature_shrinks_the_sets(sets):
    X, y = sets
    model = FenchelYoungMultilabelClassifier("gini", C=10.0).fit(X, y)
    sizes = [model.set_params(inverse_temperature=t).predict(X).sum() for t in (0.5, 1.0, 2.0, 5.0)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    scores = torch.from_numpy(5.0 * model.decision_function(X))
    np.testing.assert_array_equal(model.predict_proba(X), fy.sparsemax(scores).numpy())


def test_threshold(sets):
    X, y = sets
    model = FenchelYoungMultilabelClassifier("shannon").fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict(X), p > 1 / 6)
    np.testing.assert_array_equal(model.set_params(threshold=0.3).predict(X), p > 0.3)
    sparse = FenchelYoungMultilabelClassifier("gini", threshold=0.2).fit(X, y)
    np.testing.assert_array_equal(sparse.predict(X), sparse.predict_proba(X) > 0.2)


def test_two_labels_stay_two():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    y = np.array([[1, 0], [1, 0], [1, 1], [0, 1]])
    model = FenchelYoungMultilabelClassifier("gini", C=1000.0).fit(X, y)
    assert model.coef_.shape == (2, 1)
    np.testing.assert_array_equal(model.predict(X)[[0, 3]], y[[0, 3]])


def test_learns_sets(sets):
    X, y = sets
    model = FenchelYoungMultilabelClassifier("gini", inverse_temperature=1.5).fit(X[:100], y[:100])
    guess, truth = model.predict(X[100:]), y[100:]
    assert 2 * (guess & truth).sum() / (guess.sum() + truth.sum()) > 0.65


def test_rows_without_labels(sets):
    X, y = sets[0], sets[1].copy()
    y[[3, 7]] = 0
    kept = y.sum(1) > 0
    drop = FenchelYoungMultilabelClassifier(unlabeled="drop").fit(X, y, np.ones(150))
    same = FenchelYoungMultilabelClassifier().fit(X[kept], y[kept])
    np.testing.assert_allclose(drop.coef_, same.coef_, atol=1e-12)
    q = y / np.maximum(y.sum(1, keepdims=True), 1)
    q[~kept] = 1 / 6
    uniform = FenchelYoungMultilabelClassifier(unlabeled="uniform").fit(X, y)
    np.testing.assert_allclose(uniform.coef_, LabelProportionEstimator().fit(X, q).coef_)


# ---------------------------------------------------------------------- proportions


def test_proportions_are_recovered_with_their_zeros():
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(200, 6)), rng.normal(size=(6, 5))
    q = fy.sparsemax(torch.from_numpy(X @ W)).numpy()
    model = LabelProportionEstimator("gini", C=1e6, tol=1e-9).fit(X, q)
    np.testing.assert_allclose(model.predict(X), q, atol=1e-3)
    assert ((model.predict(X) == 0) == (q == 0)).mean() > 0.99
    assert -1e-4 < model.score(X, q) <= 0
    p = torch.from_numpy(model.predict(X[::-1].copy()))
    expected = -float(fy.metrics.jensen_shannon(p, torch.from_numpy(q)))
    assert model.score(X[::-1], q) == pytest.approx(expected, abs=1e-12)


def test_proportions_of_classes(classes):
    X, y = classes
    model = LabelProportionEstimator().fit(X, np.array(["a", "b", "c"])[y])
    one_hot = LabelProportionEstimator().fit(X, np.eye(3)[y])
    np.testing.assert_allclose(model.coef_, one_hot.coef_, atol=1e-9)
    assert set(model.predict(X)) == {"a", "b", "c"}
    np.testing.assert_allclose(model.predict_proba(X), one_hot.predict(X), atol=1e-9)
    assert model.score(X, model.labels_[y]) == pytest.approx(one_hot.score(X, np.eye(3)[y]))


# ---------------------------------------------------------------------- words for bad input


def test_empty_sets_are_refused(sets):
    X, y = sets[0], sets[1].copy()
    y[3] = 0
    message = (
        "FenchelYoungMultilabelClassifier: expected at least one label in every row of `y`, but "
        "row 3 has none; drop such rows, or ask for unlabeled='drop' or 'uniform'."
    )
    with pytest.raises(fy.FenchelError) as error:
        FenchelYoungMultilabelClassifier().fit(X, y)
    assert str(error.value) == message
    y[[8, 9]] = 0
    with pytest.raises(fy.FenchelError, match="but row 3 and 2 more has none"):
        FenchelYoungMultilabelClassifier().fit(X, y)
    with pytest.raises(fy.FenchelError, match="but no row has any"):
        FenchelYoungMultilabelClassifier(unlabeled="drop").fit(X, 0 * y)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            [0.5, 0.4],
            "expected rows of `y` that sum to 1, but row 1 sums to 0.9; divide each row by its "
            "sum.",
        ),
        ([1.5, -0.5], "expected proportions of at least 0 in `y`, but row 1 has -0.5."),
    ],
)
def test_wrong_proportions_are_refused(row, message):
    with pytest.raises(fy.FenchelError) as error:
        LabelProportionEstimator().fit([[0.0], [1.0]], [[0.5, 0.5], row])
    assert str(error.value) == f"LabelProportionEstimator: {message}"


def test_proportions_that_are_not_finite_are_refused():
    X, q = [[0.0], [1.0]], [[0.5, 0.5], [0.0, 1.0]]
    wrong = [q[0], [np.nan, 1.0]]
    with pytest.raises(ValueError, match="Input y contains NaN"):  # scikit-learn's own sentence
        LabelProportionEstimator().fit(X, wrong)
    with pytest.raises(fy.FenchelError, match="but row 1 has NaN or inf; drop it"):
        LabelProportionEstimator().fit(X, q).score(X, wrong)
    with pytest.raises(fy.FenchelError, match=r"expected `y` of shape \(2, 2\), but got \(2, 3\)"):
        LabelProportionEstimator().fit(X, q).score(X, np.eye(3)[:2])


def test_one_number_a_row_is_no_distribution():
    with pytest.raises(fy.FenchelError, match="give the share of every label"):
        LabelProportionEstimator().fit([[0.0], [1.0]], [0.25, 0.75])


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_features_that_are_not_finite_are_refused(estimator, value, sparse, classes):
    X, y = classes[0].copy(), classes[1]
    X[5, 2] = value
    got = "NaN" if np.isnan(value) else str(value)
    X = scipy.sparse.csr_array(X) if sparse else X
    for call in (
        lambda: estimator().fit(X, y),
        lambda: estimator().fit(*classes).predict(X),
    ):
        with pytest.raises(fy.FenchelError) as error:
            call()
        assert str(error.value) == (
            f"{estimator.__name__}: expected finite numbers in `X`, but got {got} in row 5, column "
            "2; impute it or drop the row."
        )


@pytest.mark.parametrize(
    ("weights", "got"),
    [
        ({0: -1.0}, "class 0 has -1."),
        ({2: np.nan}, "class 2 has nan."),
        ({1: np.inf}, "has inf."),
    ],
    ids=["negative", "nan", "inf"],
)
@pytest.mark.parametrize("estimator", ALL[:2])
def test_weights_of_classes_below_zero_are_refused(estimator, weights, got, classes):
    for solver in ("lbfgs", "dual"):
        with pytest.raises(fy.FenchelError, match="expected `class_weight` of at least 0") as error:
            estimator(class_weight=weights, solver=solver).fit(*classes)
        assert str(error.value).endswith(got)
    with pytest.raises(fy.FenchelError, match="finite and not all 0"):
        estimator(class_weight={0: 0.0, 1: 0.0, 2: 0.0}).fit(*classes)


def test_which_maps_are_sparse():
    from fenchel.estimators._oracle import Oracle

    sparse = (fy.Gini(), fy.Tsallis(1.5), fy.Norm(), fy.Oscar(0.1), 2 * fy.Oscar(0.1))
    dense = (fy.Shannon(), fy.Tsallis(0.5), fy.Renyi(0.5), 3 * fy.Tsallis(0.9))
    assert all(Oracle(omega).is_sparse for omega in (*sparse, fy.FusedLasso(0.1)))
    assert not any(Oracle(omega).is_sparse for omega in dense)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_both_solvers_fit_alpha_below_one(alpha, classes):
    X, y = classes
    fits = [
        FenchelYoungClassifier(alpha=alpha, C=0.1, solver=solver, tol=1e-6).fit(X[:40], y[:40])
        for solver in ("lbfgs", "dual")
    ]
    assert all(fit.dual_gap_ <= 1e-6 for fit in fits)
    # A gap of 1e-6 lets coefficients differ by its square root.
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-3)
    assert (fits[0].predict_proba(X) > 0).all()


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"omega": "entropy"}, "expected `omega` to be one of 'fused_lasso', 'gini', 'norm', "),
        ({"omega": 3}, "expected `omega` to be a Regularizer such as fy.Tsallis"),
        ({"omega": fy.Squared()}, "expected `omega` on the simplex, such as fy.Tsallis"),
        ({"omega": 2 * fy.Zero()}, "expected `omega` with a smooth loss, but that of 2 \\* Zero"),
        ({"omega": "zero"}, "but got 'zero'."),
        ({"alpha": float("inf")}, "expected `omega` with a smooth loss"),
        ({"omega": fy.Tsallis(torch.tensor(1.5))}, "a number as alpha, but got a tensor"),
        ({"C": 0.0}, "`C` must be a number above 0; got 0.0."),
        ({"C": "1"}, "expected `C` to be a number, but got str."),
        ({"tol": -1.0}, "`tol` must be at least 0"),
        ({"max_iter": 0}, "expected `max_iter` to be an int of at least 1, but got 0."),
        ({"solver": "sag"}, "expected `solver` to be 'lbfgs' or 'dual', but got 'sag'."),
    ],
)
def test_wrong_arguments_are_refused(estimator, options, message, classes):
    with pytest.raises(fy.FenchelError, match=message) as error:
        estimator(**options).fit(*classes)
    assert str(error.value).startswith(f"{estimator.__name__}: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unlabeled": "keep"}, "expected `unlabeled` to be 'error', 'drop' or 'uniform'"),
        ({"inverse_temperature": 0.0}, "`inverse_temperature` must be a number above 0; got 0.0."),
        ({"threshold": 1.0}, "`threshold` must be at least 0 and below 1; got 1."),
        ({"class_weight": "balanced"}, "expected no `class_weight` with sets of labels"),
    ],
)
def test_wrong_arguments_for_sets_are_refused(options, message, sets):
    with pytest.raises(fy.FenchelError, match=message):
        FenchelYoungMultilabelClassifier(**options).fit(*sets)


def test_other_targets_are_refused(sets):
    with pytest.raises(fy.FenchelError, match="0 and 1 for every label"):
        FenchelYoungMultilabelClassifier().fit(sets[0], 2 * sets[1] + sets[1][:, ::-1])
    with pytest.raises(fy.FenchelError, match="at least 2 classes in `y`, but got one class"):
        FenchelYoungClassifier().fit(sets[0], np.zeros(150))
    with pytest.raises(fy.FenchelError, match=r"`sample_weight` of at least 0 .* from -1 to 1"):
        FenchelYoungClassifier().fit(sets[0], sets[1][:, 0], np.linspace(-1, 1, 150))
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        FenchelYoungClassifier().fit(sets[0], sets[1][:, 0], np.zeros(150))


def test_missing_scikit_learn_is_named():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import fenchel\n"
        "try:\n    import fenchel.estimators\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("fenchel.estimators needs scikit-learn, which cannot be imported")
    assert done.stdout.endswith('install it with `pip install "fenchel[sklearn]"`.\n')
