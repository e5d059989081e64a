"""The losses of entmax for 0 < alpha < 1, where every class has some probability."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

import fenchel as fy
from tests.reference import _mp_entmax

F64 = torch.float64
ALPHAS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
alphas = pytest.mark.parametrize("alpha", ALPHAS)


def truth(scores, target, alpha, h=0):
    """The loss against a class by its definition, in 110 digits."""
    with mp.workdps(110):
        alpha = mp.mpf(alpha) + h
        p = _mp_entmax(scores, alpha)
        omega = mp.fsum(v**alpha - v for v in p if v > 0) / (alpha * (alpha - 1))
        linear = mp.fsum(v * mp.mpf(x) for v, x in zip(p, scores, strict=True) if v > 0)
        return linear - omega - mp.mpf(scores[target])


def slope(scores, target, alpha):
    with mp.workdps(110):
        h = mp.mpf(10) ** -20
        up, down = truth(scores, target, alpha, h), truth(scores, target, alpha, -h)
        return float((up - down) / (2 * h))


@alphas
@pytest.mark.parametrize("n", [2, 9, 300])
def test_value_and_slope_match_110_digits(alpha, n, rng, backend):
    x = torch.randn(n, generator=rng, dtype=F64) * 3
    x[-1] = x.max() + 1e-3
    for dtype, bound in ((F64, 1e-12), (torch.float32, 2e-6)):
        row = x.to(dtype)
        for target in (0, int(row.argmax()), int(row.argmin())):
            scores = row.double().tolist()
            parameter = torch.tensor(alpha, dtype=F64, requires_grad=True)
            loss = fy.entmax_loss(row, torch.tensor(target), parameter)
            assert loss.item() == pytest.approx(float(truth(scores, target, alpha)), rel=bound)
            (got,) = torch.autograd.grad(loss, parameter)
            assert got.item() == pytest.approx(slope(scores, target, alpha), rel=10 * bound)


@alphas
def test_gradient_is_the_residual_and_may_be_taken_twice(alpha, rng, backend):
    x = torch.randn(4, 6, generator=rng, dtype=F64).requires_grad_()
    y = torch.tensor([0, 5, 2, 2])
    (got,) = torch.autograd.grad(fy.entmax_loss(x, y, alpha, reduction="sum"), x)
    expected = fy.entmax(x, alpha).detach() - F.one_hot(y, 6)
    torch.testing.assert_close(got, expected, atol=1e-13, rtol=0)
    parameter = torch.tensor(alpha, dtype=F64, requires_grad=True)
    assert gradcheck(lambda x: fy.entmax_loss(x, y, alpha), x)
    if alpha > 0.1:  # closer to 0 the loss is too steep in alpha for differences
        assert gradcheck(lambda x, a: fy.entmax_loss(x, y, a), (x, parameter))
        assert gradgradcheck(lambda x, a: fy.entmax_loss(x, y, a), (x, parameter))


@alphas
def test_masks_and_certainty(alpha, backend):
    x = torch.tensor([[1.0, -math.inf, 0.0], [1.0, -math.inf, 0.0]], requires_grad=True)
    losses = fy.entmax_loss(x, torch.tensor([0, 1]), alpha, reduction="none")
    assert losses[0].isfinite() and losses[0] > 0 and losses[1] == math.inf
    losses[0].backward()
    assert x.grad[0, 1] == 0 and x.grad.isfinite().all()
    short = fy.entmax_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), alpha)
    torch.testing.assert_close(losses[0], short)
    # All but one masked: p is one-hot, and so is the target.
    only = torch.tensor([[-math.inf, 3.0, -math.inf]])
    assert fy.entmax_loss(only, torch.tensor([1]), alpha) == 0
    assert fy.Tsallis(alpha)(torch.tensor([0.0, 1.0, 0.0])) == 0
    assert fy.Tsallis(alpha).margin == math.inf


def test_a_tensor_of_alphas_has_the_margin_of_the_smallest():
    assert fy.Tsallis(torch.tensor([0.5, 2.0])).margin == math.inf
    assert fy.Tsallis(torch.tensor([1.5, 2.0])).margin == 2.0


@alphas
def test_soft_targets_have_their_minimum_at_the_map(alpha, rng, backend):
    x = torch.randn(5, 7, generator=rng, dtype=F64)
    q = fy.entmax(x, alpha)
    assert fy.entmax_loss(x, q, alpha).abs() < 1e-13
    other = torch.softmax(torch.randn(5, 7, generator=rng, dtype=F64), 1)
    losses = fy.entmax_loss(x, other, alpha, reduction="none")
    omega = fy.Tsallis(alpha)
    expected = omega(other) - omega(q) + ((q - other) * x).sum(1)
    assert (losses > 0).all()
    torch.testing.assert_close(losses, expected, rtol=1e-11, atol=1e-11)
    tensor = torch.full((5, 1), alpha, dtype=F64)
    torch.testing.assert_close(fy.entmax_loss(x, other, tensor, reduction="none"), losses)


@alphas
def test_output_layer_and_smoothing(alpha, rng, backend):
    hidden = torch.randn(9, 4, generator=rng, dtype=F64).requires_grad_()
    weight = torch.randn(11, 4, generator=rng, dtype=F64).requires_grad_()
    bias = torch.randn(11, generator=rng, dtype=F64)
    bias[3] = -math.inf
    target = torch.tensor([0, 1, 2, 4, 5, 6, -100, 8, 9])
    for smoothing in (0.0, 0.2):
        parameter = torch.tensor(alpha, dtype=F64, requires_grad=True)
        leaves = (hidden, weight, parameter)
        layer = fy.linear_entmax_loss(
            hidden, weight, target, parameter, bias=bias, label_smoothing=smoothing
        )
        scores = F.linear(hidden, weight, bias)
        plain = fy.entmax_loss(scores, target, parameter, label_smoothing=smoothing)
        torch.testing.assert_close(layer, plain, rtol=1e-11, atol=1e-11)
        for mine, theirs in zip(
            torch.autograd.grad(layer, leaves), torch.autograd.grad(plain, leaves), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_loss_is_continuous_across_one(rng, backend):
    x = torch.randn(5, 8, generator=rng, dtype=F64)
    y = torch.tensor([0, 1, 2, 3, 4])
    middle = fy.entmax_loss(x, y, 1.0, reduction="none")
    for step in (1e-3, 1e-6, 1e-9):
        below = fy.entmax_loss(x, y, 1 - step, reduction="none")
        above = fy.entmax_loss(x, y, 1 + step, reduction="none")
        assert ((below + above) / 2 - middle).abs().max() < 300 * step**2 + 1e-12
