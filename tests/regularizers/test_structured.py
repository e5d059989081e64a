"""Every Ω on every structure against all members: maximum, mean, value and loss."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from tests.regularizers.structured_cases import blocks, every_case
from tests.regularizers.structured_truth import OMEGAS, close, every_pair, pairs, scores_of

pytestmark = pytest.mark.usefixtures("backend")


def test_every_structure_and_regularizer_is_tested():
    from fenchel.regularizers import StructuredRegularizer
    from fenchel.structures._structure import BuiltIn
    from tests.regularizers.structured_cases import CASES

    def leaves(cls):
        below = cls.__subclasses__()
        own = {cls} if not cls.__abstractmethods__ else set()
        return own | {leaf for sub in below for leaf in leaves(sub)}

    theirs = {x for x in leaves(BuiltIn) if x.__module__.startswith("fenchel")}
    assert {type(case.structure) for case in CASES} == theirs
    made = {type(omega.make(fy.Sequence(2))) for omega in OMEGAS}
    assert made == {x for x in leaves(StructuredRegularizer) if x.__module__.startswith("fenchel")}


@every_pair
def test_predict_and_conjugate(omega, case):
    ours = omega.make(case.structure)
    values, means = omega.answers(case)
    mean = ours.predict(case.scores, **case.sizes)
    value = ours.conjugate(case.scores, **case.sizes)
    assert value.shape == case.batch_shape and value.dtype == torch.float64
    close(value.reshape(-1), values)
    close(case.flat(mean), means)
    for got, given in zip(blocks(mean), blocks(case.scores), strict=True):
        # What instances share has a mean for each of them.
        assert got.shape[got.dim() - given.dim() :] == given.shape or got.dim() == given.dim()
        assert got.shape[: len(case.batch_shape)] == case.batch_shape


@every_pair
def test_loss(omega, case):
    ours = omega.make(case.structure)
    values, _ = omega.answers(case)
    for seed in range(3):
        target, members = case.targets(seed)
        loss = ours.loss(case.scores, target, **case.sizes)
        linear = torch.where(members > 0, members * case.problem.scores, 0.0).sum(1)
        assert loss.shape == case.batch_shape
        assert (loss >= 0).all()
        close(loss.reshape(-1), values + omega.of(case, members) - linear)


@every_pair
def test_cost_of_a_number_is_hamming(omega, case):
    target, members = case.targets(5)
    problem = case.problem
    added = torch.zeros_like(problem.scores)
    added[:, : problem.n_unary] = 0.7 * (1 - members[:, : problem.n_unary])
    values, _ = omega.answers(case, added)
    linear = torch.where(members > 0, members * problem.scores, 0.0).sum(1)
    wanted = values + omega.of(case, members) - linear
    loss = omega.make(case.structure).loss(case.scores, target, **case.sizes, cost=0.7)
    close(loss.reshape(-1), wanted)


@every_pair
def test_cost_of_a_tensor_is_added_to_unary_scores(omega, case, rng):
    target, members = case.targets(6)
    problem = case.problem
    unary = blocks(case.scores)[0]
    cost = torch.rand(unary.shape, generator=rng, dtype=torch.float64)
    added = torch.zeros_like(problem.scores)
    added[:, : problem.n_unary] = cost.reshape(-1, problem.n_unary)
    values, _ = omega.answers(case, added)
    linear = torch.where(members > 0, members * (problem.scores + added), 0.0).sum(1)
    wanted = values + omega.of(case, members) - linear
    loss = omega.make(case.structure).loss(case.scores, target, **case.sizes, cost=cost)
    close(loss.reshape(-1), wanted)


@pairs(names="map")
def test_the_best_is_a_member(omega, case):
    means = case.flat(fy.MAP(case.structure).predict(case.scores, **case.sizes))
    for mean, members in zip(means, case.members(), strict=True):
        assert (members == mean).all(1).any()


@pairs(names="sparsemap")
def test_solve_gives_few_members_that_mix_to_the_mean(omega, case):
    ours = omega.make(case.structure)
    answer = ours.solve(case.scores, **case.sizes)
    mean = case.flat(ours.predict(case.scores, **case.sizes))
    close(case.flat(answer.means), mean)
    assert answer.gap.shape == answer.iterations.shape == answer.sizes.shape == case.batch_shape
    assert answer.weights.shape[:-1] == answer.structures.shape[:-2] == case.batch_shape
    assert answer.converged.all() and (answer.gap < 1e-8).all() and (answer.iterations >= 0).all()
    assert (answer.weights >= 0).all()
    most = answer.weights.shape[-1]
    weights = answer.weights.reshape(-1, most)
    close(weights.sum(1), torch.ones(len(mean), dtype=torch.float64))
    problem = case.problem
    rows = [case.flat(answer.structure(i)) for i in range(most)]
    mixed = sum(w.unsqueeze(1) * row for w, row in zip(weights.T, rows, strict=True))
    close(mixed, mean)
    for at, members in enumerate(case.members()):
        for i in (weights[at] > 0).nonzero().flatten():
            assert (members == rows[i][at]).all(1).any()
        # Wolfe's gap, over all members: nothing does better along the slopes.
        n = problem.n_unary
        slopes = problem.scores[at] / ours.gamma
        ahead = scores_of(members, slopes) - members[:, :n] @ mean[at, :n]
        here = scores_of(mean[at : at + 1], slopes) - mean[at, :n] @ mean[at, :n]
        assert ahead.amax() - here < 1e-9
    assert most == answer.sizes.amax() <= max(len(x) for x in case.members())


@every_case
def test_omega_of_a_mean(case):
    problem = case.problem
    mean = fy.SparseMAP(case.structure).predict(case.scores, **case.sizes)
    half = 0.5 * case.flat(mean)[:, : problem.n_unary].square().sum(1)
    close(fy.SparseMAP(case.structure)(mean).reshape(-1), half)
    close(fy.SparseMAP(case.structure, 3.0)(mean).reshape(-1), 3 * half)
    assert fy.SparseMAP(case.structure)(mean).shape == case.batch_shape
    assert torch.equal(fy.MAP(case.structure)(mean), half.reshape(case.batch_shape) * 0)


@pairs(names="sparsemap")
def test_fenchel_young_inequality(omega, case):
    """Ω*(θ) + Ω(μ) ≥ <θ, μ> for every mean μ, with equality at the prediction."""
    ours = omega.make(case.structure)
    value = ours.conjugate(case.scores, **case.sizes).reshape(-1)
    scores = case.problem.scores
    for other in (ours, fy.MAP(case.structure), omega.make(case.structure)):
        mean = other.predict(case.scores, **case.sizes)
        flat = case.flat(mean)
        gap = value + ours(mean).reshape(-1) - torch.where(flat > 0, flat * scores, 0.0).sum(1)
        assert (gap > -1e-9).all()
        if other is ours:
            close(gap, torch.zeros_like(gap))
