"""An int that does not fit in 64 bits is refused in a sentence; ctypes would cut it silently."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel.solvers import regularized_argmax

X, TARGET = torch.randn(4, 5), torch.zeros(4, dtype=torch.long)
HUGE = 2**70


def energy(p):
    return 0.5 * (p * p).sum(-1)


CALLS = {
    "SparseMAP max_iter": lambda n: fy.SparseMAP(fy.KSubsets(2), max_iter=n).predict(X),
    "KSubsets k": lambda n: fy.MAP(fy.KSubsets(n)).predict(X),
    "Sequence n_tags": lambda n: fy.MAP(fy.Sequence(n)).predict(X),
    "k_best of sequences": lambda n: fy.Marginals(fy.Sequence(5)).k_best(X, n),
    "k_best of subsets": lambda n: fy.Marginals(fy.KSubsets(2)).k_best(X, n),
    "sample of sequences": lambda n: fy.Marginals(fy.Sequence(5)).sample(X, n),
    "sample of subsets": lambda n: fy.Marginals(fy.KSubsets(2)).sample(X, n),
    "sinkhorn max_iter": lambda n: fy.sinkhorn(X, max_iter=n),
    "fista max_iter": lambda n: regularized_argmax(energy, X, max_iter=n),
    "from_function max_iter": lambda n: fy.Regularizer.from_function(energy, max_iter=n),
    "dim": lambda n: fy.entmax15(X, n),
    "budget k": lambda n: fy.budget(X, n),
    "ignore_index": lambda n: fy.entmax_loss(X, TARGET, ignore_index=n),
    "ignore_index of an output layer": lambda n: fy.linear_entmax_loss(
        X, torch.randn(7, 5), TARGET, ignore_index=n
    ),
    "structure k": lambda n: fy.SparseMAP(fy.KSubsets(2)).solve(X).structure(n),
}


@pytest.mark.parametrize("n", [HUGE, -HUGE], ids=["huge", "-huge"])
@pytest.mark.parametrize("name", CALLS)
def test_beyond_64_bits_is_refused(name, n):
    with pytest.raises(fy.FenchelError):
        CALLS[name](n)


def test_the_sentence_says_what_came_and_what_to_do():
    with pytest.raises(fy.FenchelError) as error:
        fy.SparseMAP(fy.KSubsets(2), max_iter=HUGE)
    assert str(error.value) == (
        f"SparseMAP: expected `max_iter` to fit in 64 bits, but got {HUGE}; use a smaller number."
    )


@pytest.mark.parametrize("label", ["k", "n"])
def test_more_structures_than_any_memory_holds(label):
    omega = fy.Marginals(fy.Sequence(5))
    call = {"k": omega.k_best, "n": omega.sample}[label]
    with pytest.raises(fy.FenchelError, match=rf"`{label}` must be below 2\*\*31; got"):
        call(X, 2**62)


@pytest.mark.parametrize("band", [2**62, HUGE, 1e300])
def test_a_band_wider_than_any_matrix_is_no_band(band):
    assert torch.equal(fy.dtw(X.abs(), band=band), fy.dtw(X.abs()))


def test_the_largest_number_of_iterations_is_one():
    assert fy.SparseMAP(fy.KSubsets(2), max_iter=2**63 - 1).predict(X).shape == X.shape
