"""Cost-sensitive losses: hinge, softmax-margin, cost-augmented sparsemax."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.regularizers.cases import distributions, on_the_simplex, randn

pytestmark = pytest.mark.usefixtures("backend")


def test_zero_with_unit_cost_is_the_multiclass_hinge_loss(rng):
    scores = randn(20, 6, rng=rng, scale=2.0).requires_grad_()
    target = torch.randint(0, 6, (20,), generator=rng)
    loss = fy.fenchel_young_loss(scores, target, fy.Zero(), cost=1.0, reduction="none")
    gold = scores.gather(1, target[:, None])
    wrong = (scores + 1).scatter(1, target[:, None], -torch.inf).amax(1, keepdim=True)
    hinge = (wrong - gold).clamp(min=0)[:, 0]
    torch.testing.assert_close(loss, hinge, atol=1e-14, rtol=1e-14)


def test_softmax_margin(rng):
    scores = randn(20, 6, rng=rng, scale=2.0)
    target = torch.randint(0, 6, (20,), generator=rng)
    cost = torch.rand(6, 6, generator=rng).double() * (1 - torch.eye(6, dtype=torch.float64))
    loss = fy.fenchel_young_loss(scores, target, "shannon", cost=cost)
    gold = scores.gather(1, target[:, None])[:, 0]
    wanted = ((scores + cost[target]).logsumexp(1) - gold).mean()
    torch.testing.assert_close(loss, wanted, atol=1e-14, rtol=1e-14)


def test_cost_augmented_sparsemax(rng):
    scores = randn(20, 6, rng=rng, scale=2.0)
    target = torch.randint(0, 6, (20,), generator=rng)
    y = F.one_hot(target, 6).double()
    loss = fy.sparsemax_loss(scores, target, cost=2.0, reduction="none")
    augmented = scores + 2 * (1 - y)
    p = fy.sparsemax(augmented)
    wanted = 0.5 * ((y - augmented).square().sum(1) - (p - augmented).square().sum(1))
    torch.testing.assert_close(loss, wanted, atol=1e-12, rtol=1e-12)


@on_the_simplex
def test_all_forms_of_a_cost_agree(case, rng):
    scores = randn(8, 5, rng=rng).requires_grad_()
    target = torch.randint(0, 5, (8,), generator=rng)
    y = F.one_hot(target, 5).double()
    unit = torch.ones(5, dtype=torch.float64)
    matrix = 1 - torch.eye(5, dtype=torch.float64)
    wanted = case.omega.loss(scores + 1 - y, target).mean()
    for cost in (1.0, 1, torch.tensor(1.0), unit, matrix):
        for given in (target, y):
            got = fy.fenchel_young_loss(scores, given, case.omega, cost=cost)
            torch.testing.assert_close(got, wanted, atol=1e-13, rtol=1e-13)
    vector = torch.rand(5, generator=rng).double()
    rows = vector * (1 - torch.eye(5, dtype=torch.float64))
    a = fy.fenchel_young_loss(scores, target, case.omega, cost=vector)
    b = fy.fenchel_young_loss(scores, target, case.omega, cost=rows)
    torch.testing.assert_close(a, b, atol=1e-14, rtol=1e-14)


def test_probability_targets_mix_the_costs(rng):
    scores, q = randn(4, 5, rng=rng), distributions(4, 5, rng)
    cost = torch.rand(5, 5, generator=rng).double()
    got = fy.fenchel_young_loss(scores, q, fy.Gini(), cost=cost, reduction="none")
    torch.testing.assert_close(got, fy.Gini().loss(scores + q @ cost, q))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_costs_follow_the_class_axis(dim, rng):
    scores = randn(5, 5, 5, rng=rng)
    target = torch.randint(0, 5, (5, 5), generator=rng)
    cost = torch.rand(5, 5, generator=rng).double()
    moved = fy.entmax_loss(scores.movedim(dim, 1), target, cost=cost)
    assert torch.equal(fy.entmax_loss(scores, target, cost=cost, dim=dim), moved)


def test_a_cost_is_paid_only_where_rows_count(rng):
    scores = randn(4, 5, rng=rng)
    target = torch.tensor([0, -100, 2, -100])
    got = fy.entmax_loss(scores, target, cost=torch.rand(5, 5, generator=rng).double())
    assert got.isfinite()


def test_a_cost_can_be_learned(rng):
    scores = randn(4, 5, rng=rng)
    target = torch.tensor([0, 1, 2, 3])
    cost = torch.rand(5, 5, generator=rng).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda c: fy.entmax_loss(scores, target, cost=c), cost)


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (torch.ones(4, 5), r"expected `cost` of shape \(5, 5\), .* but got \(4, 5\)"),
        (torch.ones(4), r"but got \(4,\)"),
        (torch.ones(5, dtype=torch.long), "floating dtype"),
        ("hinge", "a number or a torch.Tensor, but got str"),
        (-1.0, "must be at least 0"),
        (float("nan"), "must be at least 0"),
        (True, "but got bool"),
    ],
    ids=str,
)
def test_a_wrong_cost_is_refused(cost, said):
    with pytest.raises(fy.FenchelError, match=said):
        fy.entmax_loss(torch.zeros(2, 5), torch.tensor([0, 1]), cost=cost)
