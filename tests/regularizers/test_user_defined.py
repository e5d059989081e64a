"""Regularizers that users write: the same contract as ours, by a solver and implicit gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import fenchel as fy
from tests.regularizers.user_defined_cases import (
    F64,
    INF,
    chain,
    check_derivatives,
    distributions,
    every,
    from_function,
    gini,
    known,
    norm,
    randn,
    shannon,
    smooth_rows,
    squared_norm,
    tsallis3,
    tsallis15,
)

# ---------------------------------------------------------------------- what an Ω brings


@known
@pytest.mark.parametrize("gamma", [0.3, 1.0, 5.0])
def test_agrees_with_ours(f, ours, gamma, rng):
    omega, ours = from_function(f, gamma=gamma), gamma * ours
    scores, target = randn(6, 7, rng=rng), distributions(6, 7, rng=rng)
    indices = torch.tensor([0, 6, 1, 5, 2, 4])
    constant = omega(F.one_hot(torch.tensor(0), 7).double())  # ours are 0 at the vertices

    def same(got: Tensor, expected: Tensor) -> None:
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)

    same(omega.predict(scores), ours.predict(scores))
    same(omega.conjugate(scores), ours.conjugate(scores) - constant)
    same(omega.loss(scores, indices), ours.loss(scores, indices))
    same(omega.loss(scores, target), ours.loss(scores, target))
    same(omega(target), ours(target) + constant)
    inner = scores.softmax(-1)
    same(omega.bregman(target, inner), ours.bregman(target, inner))


@pytest.mark.parametrize(
    ("f", "margin"),
    [
        (gini, 1.0),
        (tsallis15, 2.0),
        (tsallis3, 0.5),
        (norm, 1.0),
        (squared_norm, 1.0),
        (lambda p: (p * p.log()).sum(-1), INF),
        (lambda p: torch.xlogy(p, p).sum(-1), INF),
        (lambda p: -p.sqrt().sum(-1), INF),
    ],
)
def test_margin(f, margin):
    assert from_function(f).margin == pytest.approx(margin)
    assert from_function(f, gamma=3.0).margin == pytest.approx(3 * margin)
    if margin < INF:
        for gap, is_zero in ((1.001, True), (0.99, False)):
            scores = torch.tensor([0.0, gap * margin, 0.0], dtype=F64)
            assert bool(from_function(f).loss(scores, torch.tensor(1)) == 0) == is_zero


def test_margin_of_a_fixed_size_is_refused():
    matrix = torch.eye(5, dtype=F64)
    omega = from_function(lambda p: ((p @ matrix) * p).sum(-1))
    with pytest.raises(fy.FenchelError, match="two classes"):
        _ = omega.margin


@pytest.mark.parametrize(
    "f",
    [
        shannon,
        lambda p: (p * p.log()).sum(-1),
        lambda p: torch.xlogy(p, p).sum(-1),
        lambda p: -torch.special.entr(p).sum(-1),
    ],
    ids=["clamped", "plain", "xlogy", "entr"],
)
def test_infinite_slopes(f, rng):
    omega = from_function(f)
    scores = randn(5, 6, rng=rng, scale=10).requires_grad_()
    torch.testing.assert_close(omega.predict(scores), scores.softmax(-1), rtol=0, atol=1e-10)
    losses = omega.loss(scores, torch.tensor([0, 1, 2, 3, 4]))
    expected = F.cross_entropy(scores, torch.tensor([0, 1, 2, 3, 4]), reduction="none")
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-9)
    (got,) = torch.autograd.grad(losses.sum(), scores, create_graph=True)
    (want,) = torch.autograd.grad(expected.sum(), scores, create_graph=True)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    (got,) = torch.autograd.grad((got**2).sum(), scores)
    (want,) = torch.autograd.grad((want**2).sum(), scores)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-9)


@every
def test_loss_is_zero_exactly_at_the_prediction(f, rng):
    omega = from_function(f)
    scores = randn(8, 6, rng=rng)
    target = distributions(8, 6, rng=rng)
    assert (omega.loss(scores, target) > 0).all()
    assert (omega.loss(scores, omega.predict(scores)) <= 1e-14).all()
    assert (omega.loss(scores, omega.predict(scores)) >= 0).all()


@every
def test_gamma_is_a_temperature(f, rng):
    scores, target = randn(4, 6, rng=rng), distributions(4, 6, rng=rng)
    omega, scaled = from_function(f, gamma=0.25), 0.25 * from_function(f)
    assert torch.equal(omega.predict(scores), from_function(f).predict(4 * scores))
    assert torch.equal(omega.predict(scores), scaled.predict(scores))
    for method in ("conjugate", "loss"):
        arguments = (scores,) if method == "conjugate" else (scores, target)
        got, expected = (getattr(o, method)(*arguments) for o in (omega, scaled))
        torch.testing.assert_close(got, expected)
    solution = omega.solve(scores, dim=-1)
    free = from_function(f).solve(4 * scores)
    torch.testing.assert_close(solution.gap, 0.25 * free.gap, rtol=1e-12, atol=0)


# ---------------------------------------------------------------------- derivatives


@every
@pytest.mark.parametrize("strongly_convex", [True, False], ids=["regular", "least_norm"])
def test_derivatives_of_the_map(f, strongly_convex, rng):
    omega = from_function(f, strongly_convex=strongly_convex, gamma=0.8)
    check_derivatives(omega.predict, smooth_rows(omega, rng))


@every
def test_derivatives_of_loss_and_conjugate(f, rng):
    omega = from_function(f)
    scores, target = smooth_rows(omega, rng), distributions(3, 5, rng=rng)
    check_derivatives(omega.conjugate, scores)
    check_derivatives(lambda x: omega.loss(x, target), scores)


@every
def test_derivatives_of_omega(f, rng):
    omega = from_function(f)
    p = randn(3, 5, rng=rng).softmax(-1).requires_grad_()
    y = randn(3, 5, rng=rng).softmax(-1).requires_grad_()
    check_derivatives(omega, p)
    check_derivatives(omega.bregman, y, p)


def test_every_entry_of_a_second_derivative(rng):
    omega = from_function(chain)
    scores = smooth_rows(omega, rng)[:1].detach().requires_grad_()
    assert gradcheck(omega.predict, scores) and gradgradcheck(omega.predict, scores)


@pytest.mark.parametrize("strongly_convex", [True, False], ids=["regular", "least_norm"])
def test_torch_func(strongly_convex, rng):
    from torch.func import hessian, jacfwd, jacrev, vmap

    omega = from_function(tsallis15, strongly_convex=strongly_convex)
    scores = smooth_rows(omega, rng).detach()
    for transform in (
        lambda f: vmap(f),
        lambda f: vmap(jacrev(f)),
        lambda f: vmap(jacfwd(f)),
        lambda f: vmap(hessian(f)),
        lambda f: jacrev(jacrev(f)),
    ):
        got, expected = transform(omega.predict)(scores), transform(fy.entmax15)(scores)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
    target = torch.tensor(1)
    got = vmap(hessian(lambda x: omega.loss(x, target)))(scores)
    expected = vmap(hessian(lambda x: fy.Tsallis(1.5).loss(x, target)))(scores)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
    with pytest.raises(fy.FenchelError, match="forward-over-forward"):
        jacfwd(jacfwd(omega.predict))(scores)


def flat(p: Tensor) -> Tensor:
    return 0.5 * (p[..., :2] ** 2).sum(-1)


def test_singular_hessians(rng):
    scores = torch.tensor([0.3, 0.1, 0.0, 0.0, -5.0], dtype=F64, requires_grad=True)
    with pytest.raises(fy.FenchelError, match="strongly_convex=False"):
        from_function(flat).predict(scores)[0].backward()
    omega = from_function(flat, strongly_convex=False)
    jacobian = torch.autograd.functional.jacobian(omega.predict, scores)
    # p0 and p1 follow their scores, the two flat entries share what is left, evenly.
    expected = torch.zeros(5, 5, dtype=F64)
    expected[:2, :2] = torch.eye(2)
    expected[2:4, :2], expected[:2, 2:4], expected[2:4, 2:4] = -0.5, -0.5, 0.5
    torch.testing.assert_close(jacobian, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("strongly_convex", [True, False], ids=["regular", "least_norm"])
def test_masks_and_bad_rows(strongly_convex, rng):
    omega = from_function(tsallis15, strongly_convex=strongly_convex)
    scores = randn(4, 6, rng=rng)
    scores[0, 2], scores[1], scores[2, 3] = -INF, -INF, math.nan
    scores.requires_grad_()
    upstream = randn(4, 6, rng=rng)
    p, truth = omega.predict(scores), fy.entmax15(scores)
    torch.testing.assert_close(p, truth, rtol=0, atol=1e-12, equal_nan=True)
    (got,) = torch.autograd.grad(p, scores, upstream)
    (expected,) = torch.autograd.grad(truth, scores, upstream)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10, equal_nan=True)
    assert got[0, 2] == 0 and (got[1] == 0).all() and got[2].isnan().all()
    mask = torch.rand(4, 6, generator=rng) < 0.7
    clean = randn(4, 6, rng=rng)
    masked = omega.predict(clean, mask=mask)
    assert torch.equal(masked, omega.predict(clean.masked_fill(~mask, -INF)))


def test_gradient_of_a_row_does_not_see_its_batch(rng):
    omega = from_function(tsallis15)
    scores = randn(30, 9, rng=rng) * torch.logspace(-1, 1, 30, dtype=F64).unsqueeze(-1)
    upstream = randn(30, 9, rng=rng)

    def gradient(rows: slice) -> Tensor:
        x = scores[rows].clone().requires_grad_()
        return torch.autograd.grad(omega.predict(x), x, upstream[rows])[0]

    together = gradient(slice(None))
    for i in range(0, 30, 4):
        assert torch.equal(gradient(slice(i, i + 1))[0], together[i])
