"""Entmax for 0 < alpha < 1: dense, with tails that fall as a power of the score."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import fenchel as fy
from tests.maps.cases import MAPS, assert_matches_reference, randn
from tests.reference import mp_entmax, mp_entmax_dalpha

F64 = torch.float64
ALPHAS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
ENTMAX = MAPS["entmax"]
alphas = pytest.mark.parametrize("alpha", ALPHAS)


@alphas
@pytest.mark.parametrize("as_tensor", [False, True], ids=["number", "tensor"])
def test_matches_110_digits(alpha, as_tensor, rng, backend):
    parameter = torch.tensor(alpha, dtype=F64) if as_tensor else alpha
    for n, scale in ((2, 1.0), (7, 1e-3), (7, 10.0), (40, 1.0), (200, 3.0), (7, 1e6)):
        for dtype, bound in ((F64, 1e-14), (torch.float32, 3e-7)):
            x = randn(n, rng=rng, dtype=dtype, scale=scale)
            expected = mp_entmax(x.double().tolist(), alpha)
            got = fy.entmax(x, parameter).double().numpy()
            assert np.abs(got - expected).max() <= bound


def test_is_its_formula():
    p = fy.entmax(torch.tensor([-1.0, 0.0, 0.5], dtype=F64), 0.5)
    # p = (1 + (tau - x) / 2)^-2: the differences of p^(-1/2) are half those of the scores.
    root = p.pow(-0.5)
    torch.testing.assert_close(root[0] - root[1], torch.tensor(0.5, dtype=F64))
    torch.testing.assert_close(root[1] - root[2], torch.tensor(0.25, dtype=F64))
    assert float(p.sum()) == pytest.approx(1, abs=1e-15)


@alphas
def test_tails_are_heavier_than_those_of_softmax(alpha, backend):
    x = torch.tensor([0.0, -20.0, -60.0], dtype=F64)
    p, soft = fy.entmax(x, alpha), fy.softmax(x)
    assert (p[1:] > soft[1:]).all() and (p > 0).all()


@alphas
@pytest.mark.parametrize("n", [3, 100, 5000, 100_000])
def test_long_rows_sum_to_one(alpha, n, rng, backend):
    for dtype in (F64, torch.float32):
        x = randn(2, n, rng=rng, dtype=dtype, scale=4.0)
        x[1, 0] = 50.0
        p = fy.entmax(x, alpha)
        assert_matches_reference(ENTMAX, x, p, alpha)
        bound = 1e-6 * math.log2(n + 1) if dtype == torch.float32 else 1e-12
        assert (p.sum(-1, dtype=F64) - 1).abs().max() <= bound


@alphas
def test_masks_ties_shifts_and_bad_rows(alpha, rng, backend):
    x = randn(6, 30, rng=rng, dtype=torch.float32)
    x[0, 4:] = -math.inf
    x[1] = -math.inf
    x[2, 3] = math.nan
    x[3, 3] = math.inf
    x[4, ::2] = 1.5
    x.requires_grad_()
    p = fy.entmax(x, alpha)
    (p[0] * torch.arange(30)).sum().backward()
    assert (p[0, 4:] == 0).all() and (x.grad[0, 4:] == 0).all() and (x.grad[0, :4] != 0).all()
    torch.testing.assert_close(p[0, :4], fy.entmax(x[0, :4], alpha), atol=1e-6, rtol=0)
    assert (p[1] == 0).all() and p[2:4].isnan().all() and not p[[0, 1, 4, 5]].isnan().any()
    assert (p[4, ::2] == p[4, 0]).all()
    for shift in (1e2, 1e4, 1e6):
        moved = x.detach()[5] + shift
        assert_matches_reference(ENTMAX, moved[None], fy.entmax(moved[None], alpha), alpha)


@alphas
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(alpha, dtype, rng, backend):
    x = randn(3, 4096, rng=rng, dtype=dtype, scale=3.0)
    p = fy.entmax(x, alpha)
    assert torch.equal(p, fy.entmax(x.float(), alpha).to(dtype))
    assert (p.float().sum(-1) - 1).abs().max() <= (2e-3 if dtype == torch.float16 else 1e-2)


def test_every_alpha_of_a_batch_is_solved_as_alone(rng, backend):
    alpha = torch.tensor([*ALPHAS, 1.0, 1.3, 1.5, 2.0, 3.0, math.inf, 1e-9, 1 - 1e-12], dtype=F64)
    for n in (9, 300):
        x = randn(len(alpha), n, rng=rng, dtype=torch.float32)
        p = fy.entmax(x, alpha[:, None])
        for row, a in enumerate(alpha.tolist()):
            alone = fy.entmax(x[row : row + 1], a)[0]
            if backend == "native":
                assert torch.equal(p[row], alone)
            torch.testing.assert_close(p[row], alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("alpha", [*ALPHAS, 1 - 1e-6, 1.0, 1 + 1e-6, 1.001, 1.01])
def test_gradient_in_alpha(alpha, rng, backend):
    x = randn(9, rng=rng, scale=2.0)
    expected = mp_entmax_dalpha(x.tolist(), alpha)
    for dtype, bound in ((F64, 1e-11), (torch.float32, 2e-5)):
        for j in (0, 3):
            parameter = torch.tensor(alpha, dtype=F64, requires_grad=True)
            fy.entmax(x.to(dtype), parameter)[j].backward()
            size = max(1.0, np.abs(expected).max())
            assert abs(float(parameter.grad) - expected[j]) <= bound * size


def test_value_and_gradients_are_continuous_across_one(rng, backend):
    x = randn(12, rng=rng, scale=2.0)

    def at(alpha):
        parameter = torch.tensor(alpha, dtype=F64, requires_grad=True)
        leaf = x.clone().requires_grad_()
        p = fy.entmax(leaf, parameter)
        return torch.cat([p.detach(), *(g.reshape(-1) for g in _gradients(p, leaf, parameter))])

    middle = at(1.0)
    for step in (1e-3, 1e-6, 1e-9):
        below, above = at(1.0 - step), at(1.0 + step)
        assert (below - middle).abs().max() < 30 * step + 1e-11
        assert (above - middle).abs().max() < 30 * step + 1e-11
        # Smooth: the mean of both sides is the middle to second order.
        assert ((below + above) / 2 - middle).abs().max() < 300 * step**2 + 1e-11


def _gradients(p, *leaves):
    weights = torch.linspace(-1, 1, p.shape[-1], dtype=p.dtype)
    return torch.autograd.grad((p * weights).sum(), leaves)


@alphas
def test_derivatives_of_first_and_second_order(alpha, rng, backend):
    x = randn(3, 5, rng=rng).requires_grad_()
    parameter = torch.full((3, 1), alpha, dtype=F64, requires_grad=True)
    assert gradcheck(lambda x: fy.entmax(x, alpha), x)
    assert gradcheck(fy.entmax, (x, parameter), eps=1e-7 if alpha < 0.1 else 1e-6)
    assert gradgradcheck(lambda x: fy.entmax(x, alpha), x)
    if alpha > 0.1:
        assert gradgradcheck(fy.entmax, (x, parameter))


@alphas
def test_jacobian_is_its_closed_form(alpha, rng, backend):
    x = randn(6, rng=rng)
    x[4] = -math.inf
    p = fy.entmax(x, alpha)
    s = torch.where(p > 0, p.pow(2 - alpha), 0.0)
    expected = torch.diag(s) - torch.outer(s, s) / s.sum()
    leaf = x.clone().requires_grad_()
    got = torch.autograd.functional.jacobian(lambda x: fy.entmax(x, alpha), leaf)
    torch.testing.assert_close(got, expected, atol=1e-14, rtol=0)


def test_the_largest_scores_have_an_answer(backend):
    for dtype in (F64, torch.float32):
        most = torch.finfo(dtype).max
        x = torch.tensor([most, 0.0, -most, -math.inf, most], dtype=dtype)
        for alpha in ALPHAS:
            p = fy.entmax(x, alpha)
            torch.testing.assert_close(p[[0, 4]], torch.full((2,), 0.5, dtype=dtype))
            assert p[3] == 0 and (p[1:3] < 1e-30).all()
