"""fenchel.testing: classes of one's own pass or fail, and a failure is a sentence."""

from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch
from scipy.optimize import nnls

import fenchel as fy
from fenchel import FenchelError
from fenchel.testing import CheckFailed, check_map, check_regularizer, check_structure
from fenchel.testing._truth import nonnegative_least_squares

SCORES = torch.randn(2, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


class Runs(fy.Structure):
    """One contiguous run of items."""

    def argmax(self, scores):
        i, j = max(self.runs(len(scores)), key=lambda run: float(scores[run[0] : run[1]].sum()))
        best = torch.zeros_like(scores)
        best[i:j] = 1
        return best

    def enumerate(self, problem, row=0):
        return (tuple(range(i, j)) for i, j in self.runs(problem.layout[0]))

    @staticmethod
    def runs(n):
        return list(itertools.combinations(range(n + 1), 2))


class ShortSighted(Runs):
    """Looks at runs of one item only."""

    def argmax(self, scores):
        return torch.nn.functional.one_hot(scores.argmax(), len(scores)).double()


class Unlisted(Runs):
    def enumerate(self, problem, row=0):
        return fy.Structure.enumerate(self, problem, row)


class Forgetful(Runs):
    """Lists no run of one item."""

    def enumerate(self, problem, row=0):
        return (parts for parts in super().enumerate(problem, row) if len(parts) > 1)


class Moody(Runs):
    """Another answer at every third call."""

    def __init__(self):
        self.calls = itertools.count()

    def argmax(self, scores):
        best = super().argmax(scores)
        return best if next(self.calls) % 3 else best * 0


def failure(call, *args, **kwargs) -> str:
    with pytest.raises(CheckFailed) as error:
        call(*args, **kwargs)
    assert isinstance(error.value, AssertionError)
    return str(error.value)


def test_a_structure_of_ones_own_passes():
    checked = check_structure(Runs(), SCORES)
    assert "Runs(): the best beats every other answer" in checked
    assert (
        "SparseMAP(Runs(), gamma=0.4): the mean and the value are those of all members" in checked
    )
    assert not any("Marginals" in what for what in checked)  # it has no sums
    masked = check_structure(Runs(), SCORES, mask=torch.tensor([True, True, False, True]))
    assert set(masked) <= set(checked)


def test_without_a_list_of_members_fewer_things_are_checked():
    checked, fewer = check_structure(Runs(), SCORES), check_structure(Unlisted(), SCORES)
    assert 20 < len(fewer) < len(checked)


def test_structures_that_are_wrong():
    assert failure(check_structure, ShortSighted(), SCORES).startswith(
        "MAP(ShortSighted()): the mean and the value are those of all members: expected the "
        "conjugate "
    )
    assert failure(check_structure, Forgetful(), -1 - SCORES.abs()).startswith(
        "MAP(Forgetful()): the mean and the value are those of all members: expected the conjugate "
    )
    assert failure(check_structure, Moody(), SCORES).startswith(
        "Moody(): the best beats every other answer: expected the best structure of instance"
    )


def test_an_error_inside_is_a_failure_too():
    class Broken(Runs):
        def argmax(self, scores):
            raise ZeroDivisionError("no")

    assert failure(check_structure, Broken(), SCORES).endswith(
        "expected an answer, but got ZeroDivisionError: no"
    )


class Euclid(fy.Regularizer):
    """Half the squared norm: its map is sparsemax."""

    margin = 1.0
    slip = 1.0

    def omega_rows(self, p):
        return 0.5 * ((p * p).sum(-1) - 1)

    def gradient_rows(self, p):
        return self.slip * p

    def predict_rows(self, scores):
        return fy.sparsemax(scores)

    def __repr__(self):
        return f"{type(self).__name__}()"


def test_a_regularizer_of_ones_own_passes():
    checked = check_regularizer(Euclid(), entropy=True)
    assert len(checked) == 20
    assert "Euclid(): the loss is zero from the margin on" in checked
    assert len(check_regularizer(Euclid())) < len(checked)


def test_regularizers_that_are_wrong():
    class Slipped(Euclid):
        slip = 1.1

    assert failure(check_regularizer, Slipped()).startswith(
        "Slipped(): the bregman divergence at a dual pair is the loss: expected the map of ∇Ω(p)"
    )

    class Other(Euclid):
        def predict_rows(self, scores):
            return fy.entmax15(scores)

    assert failure(check_regularizer, Other()).startswith(
        "Other(): the prediction is the maximiser: expected <θ, q> - Ω(q) at another point of at "
        "most "
    )

    class Short(Euclid):
        margin = 0.9

    assert failure(check_regularizer, Short(), entropy=True).startswith(
        "Short(): the loss is zero from the margin on: expected no loss at the margin 0.9, but got"
    )


def test_an_omega_on_a_structure():
    class Twice(fy.SparseMAP):
        def maximum(self, problem):
            return 2 * super().maximum(problem)

    tree = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert len(check_regularizer(fy.SparseMAP(fy.DependencyTree()), tree)) > 15
    assert failure(check_regularizer, Twice(fy.DependencyTree()), tree).startswith(
        "SparseMAP(DependencyTree(single_root=True, projective=False), gamma=1): the mean and the "
        "value are those of all members: expected the conjugate "
    )


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(FenchelError) as error:
        check_regularizer(fy.SparseMAP(fy.OneOf()))
    assert str(error.value) == (
        "check_regularizer: expected `scores` for SparseMAP(OneOf(), gamma=1), a batch of small "
        "instances of OneOf(), but got None."
    )
    with pytest.raises(FenchelError) as error:
        check_regularizer(3)
    assert str(error.value) == (
        "check_regularizer: expected a fenchel.Regularizer or fenchel.StructuredRegularizer, but "
        "got int."
    )


def budget(scores, dim=-1, mask=None):
    return fy.budget(scores, torch.tensor(2.0), dim=dim, mask=mask)


@pytest.mark.parametrize(
    ("function", "known"),
    [
        (fy.softmax, {"sparse": False}),
        (fy.sparsemax, {"sparse": True}),
        (fy.entmax15, {"sparse": True}),
        (partial(fy.entmax, alpha=1.25), {"sparse": True}),
        (partial(fy.normmax, q=2.0), {"sparse": True}),
        (partial(fy.renyimax, beta=0.5), {}),
        (partial(fy.sq_pnorm_max, q=1.5), {"sparse": True}),
        (fy.fusedmax, {"symmetric": False, "sparse": True}),
        (fy.oscarmax, {"sparse": True}),
        (budget, {"mass": lambda n: min(2.0, n)}),
    ],
    ids=lambda x: getattr(getattr(x, "func", x), "__name__", None),
)
def test_maps_pass(function, known, backend):
    assert len(check_map(function, **known)) >= 15


def test_maps_that_are_wrong():
    def plain(scores, dim=-1, mask=None):
        return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -math.inf), dim)

    assert " to the last bit, but got " in failure(check_map, plain)
    assert failure(check_map, plain, bits=False).startswith(
        "plain: a fully masked row is zero: expected a fully masked row, 0.0 at [0] to the last "
        "bit, but got nan"
    )
    assert failure(check_map, fy.softmax, sparse=True) == (
        "softmax: zeros are exact or absent: expected exact zeros at low scores, but all entries "
        "have mass"
    )
    assert failure(check_map, fy.sparsemax, mass=2.0, name="mine").startswith(
        "mine: entries are at least zero and have their sum: expected a sum of 1 entries in "
        "torch.float64, 2 at [0], but got 1 "
    )

    def lossy(scores, dim=-1, mask=None):
        p = fy.sparsemax(scores, dim, mask=mask)
        return torch.where(p > 0, 0.5 * p + 0.5 * p.detach(), 0.0 * p)

    assert failure(check_map, lossy).startswith(
        "lossy: derivatives are those of finite differences: expected the first derivative of "
        "finite differences, but got another: "
    )
    assert failure(check_map, fy.fusedmax).startswith("fusedmax: ")


@pytest.mark.parametrize("shape", [(4, 3), (9, 6), (21, 20)])
def test_least_squares_against_scipy(shape, rng):
    for _ in range(20):
        a = torch.randn(shape, generator=rng, dtype=torch.float64)
        b = torch.randn(shape[0], generator=rng, dtype=torch.float64)
        wanted, _ = nnls(a.numpy(), b.numpy())
        for start in (torch.zeros(shape[1]) > 0, torch.rand(shape[1], generator=rng) > 0.5):
            got = nonnegative_least_squares(a, b, start)
            torch.testing.assert_close(got, torch.from_numpy(wanted), rtol=0, atol=1e-10)
