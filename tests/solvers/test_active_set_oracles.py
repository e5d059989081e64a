"""SparseMAP through oracles of a user's own, and where it stops."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from fenchel import FenchelError
from fenchel.solvers.sparsemap import sparse_map, sparse_map_means
from fenchel.structures import (
    Assignment,
    OneOf,
    Structure,
)
from tests.solvers.active_set_cases import CASES, counts, draw, true_means


class Runs(Structure):
    """One contiguous run of items, in the ten lines of the documentation."""

    def argmax(self, scores):
        n = len(scores)
        runs = [(i, j) for i in range(n) for j in range(i + 1, n + 1)]
        i, j = max(runs, key=lambda run: float(scores[run[0] : run[1]].sum()))
        best = torch.zeros_like(scores)
        best[i:j] = 1
        return best


def test_a_users_structure(backend, rng):
    scores = draw(rng, 2, 5).requires_grad_()
    problem = Runs().problem("test", scores)
    means = sparse_map_means(Runs(), problem)
    members = counts([range(i, j) for i in range(5) for j in range(i + 1, 6)], 5)
    for mean, row in zip(means.detach(), scores.detach(), strict=True):
        truth = true_means(members, 5, row)
        torch.testing.assert_close(mean, truth, rtol=0, atol=1e-6)
    assert torch.autograd.gradcheck(
        lambda x: sparse_map_means(Runs(), Runs().problem("t", x)), [scores], eps=1e-7, atol=1e-5
    )


class Listed(Structure):
    """Members from a list, of which only the first parts have a quadratic term."""

    def __init__(self, members, n_unary, lie=False):
        self.members, self.n_unary, self.lie, self.asked = members, n_unary, lie, 0

    def argmax(self, scores):
        self.asked += 1
        order = (self.members @ scores).argsort(descending=True)
        return self.members[order[min(self.asked % 3, len(order) - 1) if self.lie else 0]]

    def of(self, scores):
        problem = self.problem("test", scores)
        return type(problem)(**{**vars(problem), "n_unary": self.n_unary})


def test_members_that_the_quadratic_term_cannot_tell_apart(rng):
    # Corners of a square, each with a few copies that differ in other parts: affinely dependent
    # and repeated points. The linear part decides among them.
    for seed in range(20):
        rng.manual_seed(seed)
        corners = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
        extra = torch.eye(12, dtype=torch.float64)
        members = torch.cat([corners.repeat(3, 1), extra], 1)
        structure = Listed(members, 2)
        scores = draw(rng, 1, 14, scale=0.3)
        solution = sparse_map(structure, structure.of(scores))
        assert bool(solution.converged.all())
        truth = true_means(members, 2, scores[0])
        torch.testing.assert_close(solution.means[0, :2], truth, rtol=0, atol=1e-6)
        mean = solution.means[0]
        slopes = torch.cat([scores[0, :2] - mean[:2], scores[0, 2:]])
        assert ((members @ slopes).max() - slopes @ mean).item() <= 1e-11
        assert int((solution.weights > 0).sum()) <= 3  # affinely independent in the plane


def test_members_that_are_all_the_same_to_the_quadratic_term(rng):
    members = torch.cat([torch.ones(5, 1), torch.eye(5)], 1).double()
    structure = Listed(members, 1)
    scores = draw(rng, 2, 6)
    solution = sparse_map(structure, structure.of(scores))
    best = members[(members @ scores.T).argmax(0)]
    assert torch.equal(solution.means, best) and bool(solution.converged.all())


def test_the_gap_bounds_what_is_missing(backend, rng):
    structure, make, listed = CASES["shared chain"]
    problem = structure.problem("test", make(rng, 0.5))
    n = problem.n_unary
    members = counts(listed, problem.scores.shape[1])

    def value(means, scores):
        return (means @ scores - 0.5 * means[:n].square().sum()).item()

    best = sparse_map(structure, problem)
    for max_iter in (1, 2, 4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stopped = sparse_map(structure, problem, max_iter=max_iter)
        for i, scores in enumerate(problem.scores):
            missing = value(best.means[i], scores) - value(stopped.means[i], scores)
            assert -1e-12 <= missing <= stopped.gap[i].item() + 1e-12
            slopes = scores.clone()
            slopes[:n] -= stopped.means[i, :n]
            gap = (members @ slopes).max() - slopes @ stopped.means[i]
            assert gap.item() == pytest.approx(stopped.gap[i].item(), abs=1e-11)


def test_too_few_iterations_are_warned_of(backend, rng):
    scores = draw(rng, 3, 20, scale=0.1)
    problem = OneOf().problem("test", scores)
    with pytest.warns(UserWarning, match="3 of 3 instances did not converge in 1 iterations"):
        solution = sparse_map(OneOf(), problem, max_iter=1)
    assert solution.status.tolist() == [1, 1, 1] and solution.iterations.tolist() == [1, 1, 1]
    assert not bool(solution.converged.any())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loose = sparse_map(OneOf(), problem, max_iter=1, tol=1.0)
    assert bool(loose.converged.all())


def test_a_lying_oracle_ends(rng):
    structure = Listed(torch.eye(6, dtype=torch.float64), 6, lie=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may well see that something is wrong
        solution = sparse_map(structure, structure.of(draw(rng, 4, 6, scale=0.2)))
    assert structure.asked < 200
    torch.testing.assert_close(solution.means.sum(1), torch.ones(4, dtype=torch.float64))
    assert bool((solution.weights >= 0).all())


def test_an_empty_batch(backend):
    scores = torch.empty(0, 5, dtype=torch.float64, requires_grad=True)
    solution = sparse_map(OneOf(), OneOf().problem("test", scores))
    assert solution.means.shape == (0, 5) and solution.weights.shape[0] == 0
    solution.means.sum().backward()


def test_what_cannot_be_is_refused(backend, rng):
    scores = draw(rng, 2, 3, 3)
    scores[1, :, 1:] = -math.inf  # finite in every row, but in one column only
    with pytest.raises(FenchelError, match="instance 1 of the batch"):
        sparse_map(Assignment(), Assignment().problem("test", scores))
    problem = OneOf().problem("test", draw(rng, 2, 3))
    with pytest.raises(FenchelError, match="`tol` must be a finite number above 0"):
        sparse_map(OneOf(), problem, tol=0)
    with pytest.raises(FenchelError, match="`max_iter` to be an int of at least 1"):
        sparse_map(OneOf(), problem, max_iter=0)
