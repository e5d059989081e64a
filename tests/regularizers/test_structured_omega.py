"""Ω at means, and the Bregman divergence: what every Ω brings, for those that know only Ω*."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from tests.regularizers.structured_cases import blocks, every_case
from tests.regularizers.structured_truth import close, every_pair, scores_of


def product(flat, scores):
    return torch.where(flat > 0, flat * scores, 0.0).sum(1)


@every_pair
def test_omega_closes_the_fenchel_young_inequality(omega, case):
    ours, lengths = omega.make(case.structure), case.lengths
    value = ours.conjugate(case.scores, **case.sizes).reshape(-1)
    mean = ours.predict(case.scores, **case.sizes)
    found = ours(mean, lengths=lengths)
    assert found.shape == case.batch_shape
    close(found.reshape(-1), product(case.flat(mean), case.problem.scores) - value, 1e-11)


@every_pair
def test_omega_of_a_member_is_what_the_loss_adds(omega, case):
    """L(θ; y) = Ω*(θ) + Ω(y) - <θ, y>."""
    ours = omega.make(case.structure)
    target, members = case.targets(3)
    wanted = ours.loss(case.scores, target, **case.sizes).reshape(-1)
    wanted = wanted - ours.conjugate(case.scores, **case.sizes).reshape(-1)
    wanted = wanted + product(members, case.problem.scores)
    y = case.problem.restore(members)
    close(ours(y, lengths=case.lengths).reshape(-1), wanted, 1e-9)


@every_pair
def test_bregman_at_a_dual_pair_is_the_loss(omega, case):
    ours, lengths = omega.make(case.structure), case.lengths
    target, members = case.targets(4)
    p = ours.predict(case.scores, **case.sizes)
    y = case.problem.restore(members)
    divergence = ours.bregman(y, p, lengths=lengths)
    loss = ours.loss(case.scores, target, **case.sizes)
    assert divergence.shape == case.batch_shape
    assert bool((divergence >= 0).all())
    if omega.smooth:  # else Ω has many gradients at p, and the scores may be another one
        close(divergence, loss, 1e-9)
    else:
        problem = case.structure.problem("test", p, lengths)
        scores = ours.gradient_at(problem)
        close(divergence, ours.loss(problem.restore(scores), target, lengths=lengths), 1e-9)
    close(ours.bregman(p, p, lengths=lengths), torch.zeros_like(loss), 1e-12)


@every_case
def test_bregman_of_marginals_is_a_divergence_of_distributions(case):
    if "entropy" not in case.structure.smoothings:
        pytest.skip("no marginals")
    ours, other = fy.Marginals(case.structure, 0.7), case.problem.scores.flip(0)
    at = [case.problem.scores, torch.where(case.problem.scores > -torch.inf, other, -torch.inf)]
    at[1] = torch.where(at[1] == -torch.inf, at[0], at[1])
    wanted = []
    for row, members in enumerate(case.members()):
        logs = [(scores_of(members, scores[row]) / 0.7).log_softmax(0) for scores in at]
        wanted.append(0.7 * (logs[0].exp() * (logs[0] - logs[1])).sum())
    y, p = (
        ours.predict(case.problem.restore(scores), lengths=case.lengths, mask=None) for scores in at
    )
    found = ours.bregman(y, p, lengths=case.lengths).reshape(-1)
    close(found, torch.stack(wanted), 1e-9)


def test_a_mean_on_the_boundary_has_a_value():
    """Item 0 is in every subset: its score is infinite, the entropy that of the rest."""
    omega = fy.Marginals(fy.KSubsets(2))
    mean = torch.tensor([1.0, 0.5, 0.5], dtype=torch.float64)
    close(omega(mean), -torch.tensor(2.0, dtype=torch.float64).log(), 1e-11)
    close(omega(torch.tensor([1.0, 1.0, 0.0, 0.0])), torch.tensor(0.0))


@pytest.mark.parametrize(
    "omega",
    [
        fy.Marginals(fy.DependencyTree(), 0.8),
        fy.Marginals(fy.KSubsets(2)),
        fy.SmoothedDP(fy.Sequence(3), "entropy", 0.5),
        fy.SparseMAP(fy.DependencyTree(), 2.0),
    ],
    ids=repr,
)
def test_the_gradient_of_omega_has_the_mean(omega, rng):
    shape = (3, 4) if omega.structure.event_dim == 2 else (4,)
    shape = (3, 3) if isinstance(omega.structure, fy.Sequence) else shape
    scores = torch.randn(2, *shape, generator=rng, dtype=torch.float64)
    mean = omega.predict(scores).requires_grad_()
    (grad,) = torch.autograd.grad(omega(mean).sum(), mean)
    close(omega.predict(grad), mean.detach(), 1e-10)


def test_means_of_nothing_are_noticed():
    omega = fy.Marginals(fy.OneOf())
    with pytest.warns(UserWarning, match=r"Marginals: no scores have these means, .*OneOf\(\)\?"):
        omega(torch.tensor([0.5, 0.9]))


def test_forms_that_differ_are_refused():
    omega = fy.Marginals(fy.OneOf())
    with pytest.raises(fy.FenchelError, match="expected `y` and `p` of one form, but they differ"):
        omega.bregman(torch.ones(3) / 3, torch.ones(4) / 4)


def test_an_empty_batch_has_no_values():
    for structure, shape in ((fy.OneOf(), (0, 3)), (fy.DependencyTree(), (0, 2, 3))):
        omega = fy.Marginals(structure)
        assert omega(torch.zeros(shape)).shape == (0,)
        assert omega.bregman(torch.zeros(shape), torch.zeros(shape)).shape == (0,)


def test_blocks_of_a_chain_have_one_value(rng):
    scores = fy.SequenceScores(
        torch.randn(2, 4, 3, generator=rng), torch.randn(3, 3, generator=rng)
    )
    omega = fy.Marginals(fy.Sequence(3))
    mean = omega.predict(scores)
    assert all(block.dtype == torch.float32 for block in blocks(mean))
    value = omega(mean)
    assert value.dtype == torch.float32
    close(-value, omega.entropy(scores), 1e-5)
