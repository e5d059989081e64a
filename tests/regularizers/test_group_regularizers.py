"""FusedLasso and Oscar: everything of the contract that does not need symmetry and Ω(e) = 0."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.regularizers.cases import distributions, randn

pytestmark = pytest.mark.usefixtures("backend")

OMEGAS = [fy.FusedLasso(0.1), fy.FusedLasso(0.0), fy.Oscar(0.02), fy.Oscar(0.3), 2 * fy.Oscar(0.1)]
every_omega = pytest.mark.parametrize("omega", OMEGAS, ids=repr)


def test_omega():
    p = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    half = 0.5 * (p.square().sum() - 1)
    torch.testing.assert_close(fy.FusedLasso(0.7)(p), half + 0.7 * (0.3 + 0.1))
    torch.testing.assert_close(fy.Oscar(0.7)(p), half + 0.7 * (0.5 + 0.5 + 0.3))


@every_omega
def test_value_loss_and_gradient(omega, rng):
    scores = randn(6, 7, rng=rng).requires_grad_()
    p = omega.predict(scores.detach())
    value = omega.conjugate(scores)
    plain = scores.detach()
    torch.testing.assert_close(value.detach(), (p * plain).sum(-1) - omega(p))
    torch.testing.assert_close(torch.autograd.grad(value.sum(), scores)[0], p)
    target = torch.arange(6)
    for y, given in ((F.one_hot(target, 7).double(), target), (distributions(6, 7, rng),) * 2):
        loss = omega.loss(scores, given)
        wanted = omega.conjugate(plain) + omega(y) - (plain * y).sum(-1)
        torch.testing.assert_close(loss.detach(), wanted, atol=1e-12, rtol=1e-12)
        assert (loss >= 0).all()
        torch.testing.assert_close(torch.autograd.grad(loss.sum(), scores)[0], p - y)
    assert (omega.loss(scores, p) == 0).all()


@every_omega
def test_convex_and_scaled(omega, rng):
    a, b = randn(100, 5, rng=rng, scale=2.0), randn(100, 5, rng=rng, scale=2.0)
    target = torch.arange(100) % 5
    middle = omega.loss((a + b) / 2, target)
    assert (middle <= (omega.loss(a, target) + omega.loss(b, target)) / 2 + 1e-12).all()
    torch.testing.assert_close((3 * omega).loss(a, target), 3 * omega.loss(a / 3, target))


@every_omega
@pytest.mark.parametrize("hidden", [[3], [0], [1, 2], [0, 4]], ids=str)
def test_a_masked_class_is_no_neighbour_and_in_no_pair(omega, hidden, rng):
    """Between masked classes Ω is that of stretches without them: the loss is its definition."""
    scores = randn(6, 5, rng=rng)
    scores[:, hidden] = -math.inf
    kept = [place for place in range(5) if place not in hidden]
    p = omega.predict(scores)
    base, scale = (omega.omega, omega.gamma) if isinstance(omega, fy.Scaled) else (omega, 1.0)

    def penalty(q):
        if isinstance(base, fy.Oscar):
            return fy.Oscar(1.0)(q[:, kept]) - fy.Gini()(q)
        stretches = [list(run) for run in _stretches(kept)]
        return sum(q[:, run].diff(dim=-1).abs().sum(-1) for run in stretches)

    def value(q):
        return scale * (fy.Gini()(q) + base.lam * penalty(q))

    inner = torch.where(p == 0, 0.0, p * scores).sum(-1)
    torch.testing.assert_close(omega.conjugate(scores), inner - value(p))
    target = torch.full((6,), kept[0])
    y = F.one_hot(target, 5).double()
    wanted = inner - value(p) + value(y) - scores[:, kept[0]]
    torch.testing.assert_close(omega.loss(scores, target), wanted)


def _stretches(places):
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def test_margins():
    for lam in (0.0, 0.1, 0.5):
        omega = fy.FusedLasso(lam)
        lead = omega.margin
        for n in (2, 3, 4, 9):
            for place in range(n):
                scores = torch.zeros(n, dtype=torch.float64)
                scores[place] = lead * (1 + 1e-12)
                assert omega.loss(scores, torch.tensor(place)) < 1e-15
        worst = torch.tensor([0.0, lead - 1e-3, 0.0], dtype=torch.float64)
        assert omega.loss(worst, torch.tensor(1)) > 1e-9
    assert fy.Oscar(0.0).margin == 1.0
    assert fy.Oscar(0.1).margin == math.inf
    for n in (2, 5, 20):  # the lead that the docstring names
        scores = torch.zeros(n, dtype=torch.float64)
        scores[0] = 1 + 0.1 * n / 2 + 1e-9
        assert fy.Oscar(0.1).loss(scores, torch.tensor(0)) < 1e-15
        scores[0] -= 1e-2
        assert fy.Oscar(0.1).loss(scores, torch.tensor(0)) > 1e-9


@pytest.mark.parametrize("make", [fy.FusedLasso, fy.Oscar])
def test_learned_lambda(make, rng):
    scores = randn(3, 6, rng=rng).requires_grad_()
    lam = torch.tensor([0.05, 0.2, 0.11], dtype=torch.float64)[:, None].requires_grad_()
    target = torch.tensor([0, 3, 5])
    assert torch.autograd.gradcheck(lambda s, x: make(x).loss(s, target), (scores, lam))
    assert torch.autograd.gradcheck(lambda s, x: make(x).conjugate(s), (scores, lam))


def test_by_name_and_repr():
    scores, target = torch.zeros(2, 3), torch.tensor([0, 1])
    for name, omega in (("fused_lasso", fy.FusedLasso()), ("oscar", fy.Oscar())):
        wanted = fy.fenchel_young_loss(scores, target, omega)
        assert fy.fenchel_young_loss(scores, target, name) == wanted
    assert repr(fy.FusedLasso(0.1)) == "FusedLasso(lam=0.1)"
    assert repr(fy.Oscar(torch.ones(2, 1))) == "Oscar(lam=<(2, 1)>)"


@pytest.mark.parametrize("make", [fy.FusedLasso, fy.Oscar])
def test_wrong_lambda(make):
    with pytest.raises(fy.FenchelError, match="`lam` must be at least 0"):
        make(-0.1)
