"""SparseMAP against all members of small structures, other solvers, and closed forms."""

from __future__ import annotations

import math

import cvxpy
import pytest
import torch

import fenchel as fy
from fenchel.solvers.sparsemap import sparse_map, sparse_map_means
from fenchel.structures import (
    Assignment,
    KSubsets,
    OneOf,
    Sequence,
    SequenceScores,
)
from fenchel.testing._cases import blocks, rebuild
from tests.solvers.active_set_cases import CASES, counts, draw, true_means


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_it_solves_the_problem_over_all_members(name, scale, backend, rng):
    structure, make, listed = CASES[name]
    problem = structure.problem("test", make(rng, scale))
    solution = sparse_map(structure, problem)
    parts, n = problem.scores.shape[1], problem.n_unary
    members = counts(listed, parts)
    assert bool(solution.converged.all())
    for i, scores in enumerate(problem.scores):
        mean, weights = solution.means[i], solution.weights[i]
        # A distribution over members, and its mean.
        assert bool((weights >= 0).all())
        assert weights.sum().item() == pytest.approx(1, abs=1e-12)
        used = solution.structures[i][weights > 0]
        mine = counts([[int(j) for j in row if j >= 0] for row in used], parts)
        known = {tuple(row) for row in members.tolist()}
        assert all(tuple(row) in known for row in mine.tolist())
        torch.testing.assert_close(weights[weights > 0] @ mine, mean, rtol=0, atol=1e-14)
        # No member promises more: the gap over all of them, and what was reported.
        slopes = scores - torch.cat([mean[:n], torch.zeros(parts - n, dtype=torch.float64)])
        gap = ((members @ slopes).max() - slopes @ mean).item()
        bound = 1e-12 * (1 + members @ scores.abs()).max().item()
        assert gap <= bound and abs(gap - solution.gap[i].item()) <= bound
        truth = true_means(members, n, scores)
        torch.testing.assert_close(mean[:n], truth, rtol=0, atol=1e-6)
        if scale == 1.0:  # well away from ties the other solver has these digits too
            torch.testing.assert_close(mean[:n], truth, rtol=0, atol=1e-7)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_one_of_n_is_sparsemax(n, backend, rng):
    scores = draw(rng, 7, n).requires_grad_()
    problem = OneOf().problem("test", scores)
    means = sparse_map_means(OneOf(), problem)
    truth = fy.sparsemax(scores)
    torch.testing.assert_close(means, truth, rtol=0, atol=1e-12)
    grad = draw(rng, 7, n)
    mine, true = (torch.autograd.grad(x, scores, grad)[0] for x in (means, truth))
    torch.testing.assert_close(mine, true, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_subsets_are_the_capped_simplex(k, backend, rng):
    scores = draw(rng, 7, 10).requires_grad_()
    problem = KSubsets(k).problem("test", scores)
    means = sparse_map_means(KSubsets(k), problem)
    truth = fy.budget(scores, k)
    torch.testing.assert_close(means, truth, rtol=0, atol=1e-12)
    grad = draw(rng, 7, 10)
    mine, true = (torch.autograd.grad(x, scores, grad)[0] for x in (means, truth))
    torch.testing.assert_close(mine, true, rtol=0, atol=1e-11)


def test_assignments_are_projected_onto_doubly_stochastic_matrices(backend, rng):
    scores = draw(rng, 1, 6, 6)
    problem = Assignment().problem("test", scores)
    p = cvxpy.Variable((6, 6), nonneg=True)
    cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares(p - scores[0].numpy())),
        [cvxpy.sum(p, axis=0) == 1, cvxpy.sum(p, axis=1) == 1],
    ).solve(solver="CLARABEL", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    means = sparse_map_means(Assignment(), problem).reshape(6, 6)
    torch.testing.assert_close(means, torch.from_numpy(p.value), rtol=0, atol=1e-7)


def test_a_chain_without_transitions_is_a_sparsemax_a_position(backend, rng):
    # Its faces have many dimensions, and weights fall by half from member to member: the last ones
    # are not needed for the means any more, but they are for the derivative.
    scores = draw(rng, 2, 16, 4, scale=0.3).requires_grad_()
    means = sparse_map_means(Sequence(4), Sequence(4).problem("test", scores))
    truth = fy.sparsemax(scores)
    torch.testing.assert_close(means.reshape(truth.shape), truth, rtol=0, atol=1e-10)
    grad = draw(rng, 2, 16, 4)
    mine = torch.autograd.grad(means, scores, grad.reshape(means.shape))[0]
    torch.testing.assert_close(mine, torch.autograd.grad(truth, scores, grad)[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_large_scores_give_the_best_structure(name, backend, rng):
    structure, make, _ = CASES[name]
    problem = structure.problem("test", make(rng, 1e4))
    solution = sparse_map(structure, problem)
    best = problem.indicator(structure.best_parts(problem, problem.scores))
    torch.testing.assert_close(solution.means, best, rtol=0, atol=0)
    assert bool(solution.converged.all())


@pytest.mark.parametrize("name", CASES)
def test_differences_survive_a_large_common_score(name, backend, rng):
    structure, make, listed = CASES[name]
    problem = structure.problem("test", make(rng, 1.0))
    if len({sum(part < problem.n_unary for part in parts) for parts in listed}) > 1:
        # Else a constant on all unary parts changes nothing. Paths differ in length.
        pytest.skip("members have different numbers of unary parts")
    shift = torch.zeros_like(problem.scores)
    shift[:, : problem.n_unary] = 2.0**14
    moved = type(problem)(**{**vars(problem), "scores": problem.scores + shift})
    a, b = sparse_map_means(structure, problem), sparse_map_means(structure, moved)
    n = problem.n_unary
    torch.testing.assert_close(a[:, :n], b[:, :n], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_ties(name, backend):
    structure, make, listed = CASES[name]
    problem = structure.problem("test", make(torch.Generator(), 0.0))
    solution = sparse_map(structure, problem)
    assert bool(solution.converged.all())
    n = problem.n_unary
    truth = true_means(counts(listed, problem.scores.shape[1]), n, problem.scores[0])
    torch.testing.assert_close(solution.means[0, :n], truth, rtol=0, atol=1e-6)
    assert torch.equal(solution.means[0], solution.means[1])


def test_equal_scores_have_the_derivative_of_the_whole_polytope(backend):
    # Three disjoint pairs are enough for the mean, but it can move in five directions.
    scores = torch.zeros(6, dtype=torch.float64, requires_grad=True)

    def means(x):
        return sparse_map_means(KSubsets(2), KSubsets(2).problem("test", x))[0]

    jacobian = torch.autograd.functional.jacobian(means, scores)
    centred = torch.eye(6, dtype=torch.float64) - 1 / 6
    torch.testing.assert_close(jacobian, centred, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name, backend, rng):
    structure, make, _ = CASES[name]
    scores = make(rng, 1.0)

    def means(*tensors):
        return sparse_map_means(structure, structure.problem("t", rebuild(scores, tensors)))

    inputs = [x.clone().requires_grad_() for x in blocks(scores)]
    fast = backend == "reference"  # one random direction: the plain oracles take their time
    assert torch.autograd.gradcheck(means, inputs, eps=1e-7, atol=1e-5, fast_mode=fast)
    assert torch.autograd.gradgradcheck(means, inputs, eps=1e-7, atol=1e-5, fast_mode=True)


def test_weights_are_differentiable(backend, rng):
    structure = Sequence(3)
    emissions, pairs = draw(rng, 4, 3), draw(rng, 3, 3)
    inputs = [emissions.requires_grad_(), pairs.requires_grad_()]

    def weights(*tensors):
        return sparse_map(structure, structure.problem("t", SequenceScores(*tensors))).weights

    assert torch.autograd.gradcheck(weights, inputs, eps=1e-7, atol=1e-5)


def test_no_gradient_where_no_member_goes(backend, rng):
    emissions = draw(rng, 2, 5, 3)
    emissions[0, 3:] = math.nan  # padding
    scores = SequenceScores(emissions.requires_grad_(), draw(rng, 2, 4, 3, 3).requires_grad_())
    problem = Sequence(3).problem("test", scores, torch.tensor([3, 5]))
    means = sparse_map_means(Sequence(3), problem)
    (means * draw(rng, *means.shape)).sum().backward()
    assert bool((emissions.grad[0, 3:] == 0).all())
    assert bool((scores.transitions.grad[0, 2:] == 0).all())
    n = problem.n_unary
    unused = means[:, :n].reshape(2, 5, 3) == 0
    assert bool((emissions.grad[unused] == 0).all()) and bool((emissions.grad != 0).any())


def test_masked_parts_are_not_used(backend, rng):
    scores = draw(rng, 3, 5, 5)
    mask = torch.rand(3, 5, 5, generator=rng) < 0.8
    mask |= torch.eye(5, dtype=torch.bool)
    scores.requires_grad_()
    problem = Assignment().problem("test", scores, None, mask)
    means = sparse_map_means(Assignment(), problem).reshape(3, 5, 5)
    means.square().sum().backward()
    assert bool((means[~mask] == 0).all()) and bool((scores.grad[~mask] == 0).all())
    assert bool(scores.grad.isfinite().all())
    torch.testing.assert_close(means.sum(1), torch.ones(3, 5, dtype=torch.float64))


def test_padding_changes_no_bit(backend, rng):
    scores = draw(rng, 6, 7)
    short = OneOf().problem("test", scores[:, :5])
    long = OneOf().problem("test", scores, torch.full((6,), 5))
    a, b = sparse_map_means(OneOf(), short), sparse_map_means(OneOf(), long)
    assert torch.equal(a, b[:, :5]) and bool((b[:, 5:] == 0).all())


@pytest.mark.parametrize("name", CASES)
def test_native_and_generic_agree(name, rng):
    structure, make, _ = CASES[name]
    results = {}
    for which in ("native", "reference"):
        if which == "native" and fy.backends().active != "native":
            pytest.skip("no native core here")
        with fy.use_backend(which):
            scores = make(rng.manual_seed(3), 0.7)
            problem = structure.problem("test", scores)
            problem = type(problem)(**{**vars(problem), "scores": problem.scores.requires_grad_()})
            means = sparse_map_means(structure, problem)
            grad = torch.autograd.grad(means, problem.scores, torch.cos(7 * problem.scores))[0]
            results[which] = means.detach(), grad
    for a, b in zip(*results.values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_an_instance_does_not_know_its_batch(name, backend, rng, threads):
    structure, make, _ = CASES[name]
    problem = structure.problem("test", make(rng, 1.0))
    many = problem.scores.repeat(32, 1)
    wide = {"scores": many, "sizes": problem.sizes.repeat(32, 1)}
    if backend == "reference":  # in Python, one instance after the other
        wide = {"scores": problem.scores, "sizes": problem.sizes}
    results = []
    for number in (1, 2):
        threads(number)
        results.append(sparse_map(structure, type(problem)(**{**vars(problem), **wide})))
    threads(1)
    one = {"scores": problem.scores[1:2], "sizes": problem.sizes[1:2]}
    single = sparse_map(structure, type(problem)(**{**vars(problem), **one}))
    members = single.weights.shape[1]
    for result in results:
        for row in range(1, len(result.means), 2):
            assert torch.equal(result.means[row], single.means[0])
            assert torch.equal(result.weights[row, :members], single.weights[0])
            assert result.gap[row] == single.gap[0]
