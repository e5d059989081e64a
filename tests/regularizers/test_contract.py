"""One contract for every Ω: the map, the value, the loss and the margin belong together."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from fenchel.regularizers.registry import REGULARIZERS
from tests.regularizers.cases import (
    CASES,
    distributions,
    every_case,
    every_smooth_case,
    on_the_simplex,
    randn,
    rows,
)

pytestmark = pytest.mark.usefixtures("backend")

SIZES = [1, 2, 5, 40, 300]  # the native core has a path of its own for short rows


def close(got, wanted, tolerance=1e-12):
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)


def targets(n: int, count: int, rng) -> torch.Tensor:
    return torch.randint(0, n, (count,), generator=rng)


def vertices(target: torch.Tensor, n: int) -> torch.Tensor:
    return F.one_hot(target, n).double()


def test_every_regularizer_is_tested():
    elsewhere = {fy.FusedLasso, fy.Oscar}  # in test_group_regularizers.py: they are not symmetric
    assert {type(case.omega) for case in CASES} >= set(REGULARIZERS.values()) - elsewhere


# --------------------------------------------------------------------------------------- values


@every_case
def test_omega_is_what_it_says(case, rng):
    p = distributions(12, 7, rng)
    values = [case.value(row) for (row,) in rows(p)]
    close(case.omega(p), torch.tensor(values, dtype=torch.float64))


@on_the_simplex
def test_omega_is_zero_at_vertices_and_least_at_the_centre(case):
    assert (case.omega(torch.eye(5, dtype=torch.float64)) == 0).all()
    centre = case.omega(torch.full((5,), 0.2, dtype=torch.float64))
    assert centre <= case.omega(torch.tensor([0.3, 0.1, 0.2, 0.2, 0.2], dtype=torch.float64))
    assert centre <= 0


@every_case
@pytest.mark.parametrize("n", SIZES)
def test_predict_is_the_maximiser(case, n, rng):
    for scale in (0.3, 1.0, 4.0):
        scores = randn(6, n, rng=rng, scale=scale)
        p = case.omega.predict(scores)
        best = (scores * p).sum(-1) - case.omega(p)
        for _ in range(20):
            q = distributions(6, n, rng)
            # Near p, where it is easiest to do better, and far from it.
            for step in (1e-4, 0.03, 1.0):
                other = (1 - step) * p + step * q
                value = (scores * other).sum(-1) - case.omega(other)
                assert (value <= best + 1e-12 * (1 + best.abs())).all()


@every_case
@pytest.mark.parametrize("n", SIZES)
def test_conjugate_is_the_maximum_and_its_gradient_is_the_map(case, n, rng):
    scores = randn(5, n, rng=rng, scale=2.0).requires_grad_()
    value = case.omega.conjugate(scores)
    p = case.omega.predict(scores.detach())
    close(value.detach(), (p * scores.detach()).sum(-1) - case.omega(p), 1e-12)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    close(gradient, p)


@every_case
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0])
def test_loss_is_its_definition(case, n, scale, rng):
    scores = randn(8, n, rng=rng, scale=scale)
    p = case.omega.predict(scores)
    target = targets(n, 8, rng)
    for y, given in ((vertices(target, n), target), (distributions(8, n, rng),) * 2):
        values = [case.loss(*row) for row in rows(scores, p, y)]
        close(case.omega.loss(scores, given), torch.tensor(values, dtype=torch.float64))


@every_case
def test_loss_in_float32(case, rng):
    for n in (4, 40, 1000):
        for scale in (0.1, 1.0, 6.0):
            scores = randn(8, n, rng=rng, dtype=torch.float32, scale=scale)
            target = targets(n, 8, rng)
            wanted = case.omega.loss(scores.double(), target)
            got = case.omega.loss(scores, target)
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.double(), wanted, atol=2e-6, rtol=2e-6)


@every_case
def test_indices_and_one_hot_targets_agree(case, rng):
    scores = randn(6, 9, rng=rng, scale=2.0).requires_grad_()
    target = targets(9, 6, rng)
    by_index = case.omega.loss(scores, target)
    by_vector = case.omega.loss(scores, vertices(target, 9))
    close(by_index, by_vector, 1e-14)
    gradients = [torch.autograd.grad(loss.sum(), scores)[0] for loss in (by_index, by_vector)]
    close(*gradients, 1e-14)


# ----------------------------------------------------------------------------------- properties


@every_case
def test_loss_is_never_negative_and_zero_at_the_prediction(case, rng):
    for dtype in (torch.float64, torch.float32):
        for scale in (1e-3, 1.0, 30.0):
            scores = randn(64, 6, rng=rng, dtype=dtype, scale=scale)
            assert (case.omega.loss(scores, targets(6, 64, rng)) >= 0).all()
            p = case.omega.predict(scores)
            if case.simplex and dtype == torch.float64:  # in float32 it need not sum to 1
                assert (case.omega.loss(scores, p) == 0).all()


@on_the_simplex
def test_loss_is_positive_off_the_prediction(case, rng):
    if case.omega.margin == 0:
        pytest.skip("argmax: many targets have no loss")
    scores = randn(30, 5, rng=rng)
    p = case.omega.predict(scores)
    y = 0.99 * p + 0.01 * distributions(30, 5, rng, sparse=False)
    loss = case.omega.loss(scores, y)
    if case.smooth:
        assert (loss > 0).all()
    else:
        assert (loss >= 0).all()


@every_case
def test_loss_is_convex(case, rng):
    a, b = (randn(200, 5, rng=rng, scale=3.0) for _ in range(2))
    target = targets(5, 200, rng)
    for share in (0.1, 0.5):
        middle = case.omega.loss(share * a + (1 - share) * b, target)
        chord = share * case.omega.loss(a, target) + (1 - share) * case.omega.loss(b, target)
        assert (middle <= chord + 1e-13 * (1 + chord)).all()


@every_case
@pytest.mark.parametrize("n", [3, 200])
def test_gradient_is_the_residual(case, n, rng):
    scores = randn(7, n, rng=rng, scale=2.0).requires_grad_()
    p = case.omega.predict(scores.detach())
    target = targets(n, 7, rng)
    for y, given in ((vertices(target, n), target), (distributions(7, n, rng),) * 2):
        (gradient,) = torch.autograd.grad(case.omega.loss(scores, given).sum(), scores)
        close(gradient, p - y, 1e-14)


@every_smooth_case
def test_hessian_is_the_jacobian_of_the_map(case, rng):
    scores = randn(4, rng=rng, scale=0.03)
    target = torch.tensor(2)
    hessian = torch.autograd.functional.hessian(lambda s: case.omega.loss(s, target), scores)
    jacobian = torch.autograd.functional.jacobian(case.omega.predict, scores)
    close(hessian, jacobian, 1e-10)
    assert hessian.abs().max() > 1e-3


@every_smooth_case
def test_gradcheck(case, rng):
    scores = randn(3, 4, rng=rng, scale=0.2).requires_grad_()
    for target in (targets(4, 3, rng), distributions(3, 4, rng)):
        assert torch.autograd.gradcheck(lambda s: case.omega.loss(s, target), scores)  # noqa: B023
        assert torch.autograd.gradgradcheck(
            lambda s: case.omega.loss(s, target),  # noqa: B023
            scores,
            atol=1e-4,
        )
    assert torch.autograd.gradcheck(case.omega.conjugate, scores)
    assert torch.autograd.gradgradcheck(case.omega.conjugate, scores, atol=1e-4)


@every_case
@pytest.mark.parametrize("gamma", [0.25, 3.0])
def test_temperature(case, gamma, rng):
    scores, target = randn(6, 5, rng=rng, scale=2.0), targets(5, 6, rng)
    scaled = gamma * case.omega
    close(scaled.predict(scores), case.omega.predict(scores / gamma))
    close(scaled.loss(scores, target), gamma * case.omega.loss(scores / gamma, target))
    close(scaled.conjugate(scores), gamma * case.omega.conjugate(scores / gamma))
    p = distributions(6, 5, rng)
    close(scaled(p), gamma * case.omega(p))
    assert scaled.margin == gamma * case.omega.margin


@on_the_simplex
def test_order_is_preserved(case, rng):
    scores = randn(50, 6, rng=rng).sort(-1).values
    p = case.omega.predict(scores)
    assert (p.diff(dim=-1) >= 0).all()


@every_case
def test_margin(case):
    margin = case.omega.margin
    if margin == math.inf:
        scores = torch.zeros(4, dtype=torch.float64)
        scores[1] = 10.0
        assert case.omega.loss(scores, torch.tensor(1)) > 0
        return
    for below in (0.0, 0.5, 3.0):
        scores = torch.tensor([0.0, margin * (1 + 1e-15), -below, 0.0], dtype=torch.float64)
        scores.requires_grad_()
        loss = case.omega.loss(scores, torch.tensor(1))
        assert loss == 0
        if margin > 0:  # at a margin of 0 there is a tie, and no gradient but subgradients
            assert (torch.autograd.grad(loss, scores)[0] == 0).all()
        # Close to a margin of 1000 a loss is positive, but no floating-point number.
        lead = min(margin - 1e-3, 10.0)
        just_below = torch.tensor([0.0, lead, -below, 0.0], dtype=torch.float64)
        assert case.omega.loss(just_below, torch.tensor(1)) > 0


@on_the_simplex
def test_bregman_is_the_loss_at_dual_pairs(case, rng):
    if case.omega.margin == 0:
        pytest.skip("no entropy, no duality")
    p, y = distributions(10, 5, rng, sparse=False), distributions(10, 5, rng)
    p = 0.5 * p + 0.1  # away from 0, where the gradient may be so flat that it says little of p
    dual = case.omega.gradient_rows(p)
    if case.smooth:
        close(case.omega.predict(dual), p, 1e-9)
    close(case.omega.bregman(y, p), case.omega.loss(dual, y), 1e-11)
    assert (case.omega.bregman(p, p) == 0).all()


# ------------------------------------------------------------------------- masks, layout, dtypes


@on_the_simplex
def test_a_masked_wrong_class_is_absent(case, rng):
    scores = randn(5, 6, rng=rng)
    target = torch.tensor([0, 1, 2, 0, 1])
    longer = F.pad(scores, (0, 2), value=-math.inf).requires_grad_()
    loss = case.omega.loss(longer, target)
    close(loss.detach(), case.omega.loss(scores, target), 1e-13)
    (gradient,) = torch.autograd.grad(loss.sum(), longer)
    assert (gradient[:, 6:] == 0).all()
    assert gradient.isfinite().all()
    close(case.omega.conjugate(longer).detach(), case.omega.conjugate(scores), 1e-13)


@on_the_simplex
def test_a_masked_gold_class_costs_infinitely_much(case):
    scores = torch.tensor([[0.0, -math.inf, 1.0], [-math.inf] * 3], dtype=torch.float64)
    scores.requires_grad_()
    loss = case.omega.loss(scores, torch.tensor([1, 1]))
    assert (loss == math.inf).all()
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    assert gradient.isfinite().all()
    assert (gradient[:, 1] == -1).all()
    assert case.omega.conjugate(scores)[1] == -math.inf


@every_case
def test_a_bad_row_is_nan_alone(case):
    scores = torch.tensor([[0.0, math.nan, 1.0], [0.0, 1.0, 2.0]])
    loss = case.omega.loss(scores, torch.tensor([0, 0]))
    assert loss[0].isnan()
    assert loss[1] == case.omega.loss(scores[1], torch.tensor(0))


@every_case
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_any_dim(case, dim, rng):
    scores = randn(3, 4, 5, rng=rng)
    n = scores.shape[dim]
    shape = list(scores.shape)
    del shape[dim]
    target = torch.randint(0, n, shape, generator=rng)
    moved = scores.movedim(dim, -1)
    assert torch.equal(case.omega.loss(scores, target, dim), case.omega.loss(moved, target))
    assert torch.equal(case.omega.conjugate(scores, dim), case.omega.conjugate(moved))
    assert torch.equal(case.omega.predict(scores, dim).movedim(dim, -1), case.omega.predict(moved))
    p = case.omega.predict(scores, dim)
    assert torch.equal(case.omega(p, dim), case.omega(p.movedim(dim, -1)))
    soft = case.omega.loss(scores, distributions(12, 5, rng).reshape(3, 4, 5), -1)
    assert soft.shape == (3, 4)


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_computes_in_float32(case, dtype, rng):
    scores = randn(5, 6, rng=rng, dtype=dtype)
    target = targets(6, 5, rng)
    loss = case.omega.loss(scores, target)
    assert loss.dtype == dtype
    assert torch.equal(loss, case.omega.loss(scores.float(), target).to(dtype))
    assert case.omega.predict(scores).dtype == dtype
    assert case.omega.conjugate(scores).dtype == dtype


@every_case
def test_repr_is_the_call(case):
    if math.inf not in vars(case.omega).values():
        copy = eval(repr(case.omega), {name: getattr(fy, name) for name in fy.__all__})
        assert repr(copy) == repr(case.omega)
