"""What is special about the squared norm and Rényi's entropy: limits, temperature, steep places."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fenchel as fy
from tests.maps.cases import INF, MAPS, assert_matches_reference, randn
from tests.maps.test_values import hard_rows
from tests.reference_powers import mp_renyimax, mp_sq_pnorm_max, renyimax, sq_pnorm_max

both_backends = pytest.mark.usefixtures("backend")
wide = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


# fmt: off
TABLE = [  # map, parameter, scores, answer
    ("sq_pnorm_max", 1.0, [-2.0, 0.0, 0.5],  [0.0, 0.0, 1.0]),
    ("sq_pnorm_max", 1.0, [3.0, 1.0, 3.0],   [0.5, 0.0, 0.5]),
    ("sq_pnorm_max", 2.0, [-2.0, 0.0, 0.5],  [0.0, 0.25, 0.75]),
    ("sq_pnorm_max", 4.0, [1.0, 0.0, 0.0],   [1.0, 0.0, 0.0]),
    ("sq_pnorm_max", INF, [0.7, 0.0],        [0.7, 0.3]),        # max <x, p> - max(p)^2 / 2
    ("sq_pnorm_max", INF, [0.3, 0.0],        [0.5, 0.5]),
    ("sq_pnorm_max", INF, [0.75, 0.0, 0.0],  [0.75, 0.125, 0.125]),
    ("sq_pnorm_max", INF, [1.0, 0.0],        [1.0, 0.0]),
    ("sq_pnorm_max", INF, [0.5, 0.25, 0.0],  [0.5, 0.5, 0.0]),
    ("renyimax",     1.0, [-2.0, 0.0, 0.5],  [0.0486, 0.3592, 0.5922]),
]
# fmt: on


@both_backends
@wide
@pytest.mark.parametrize(("name", "param", "scores", "answer"), TABLE)
def test_table(name, param, scores, answer, dtype):
    p = MAPS[name](torch.tensor(scores, dtype=dtype), param).tolist()
    assert p == pytest.approx(answer, abs=5e-5)
    for got, expected in zip(p, answer, strict=True):
        if expected in (0.0, 1.0):
            assert got == expected


def power_rows(count: int):
    """Hard rows, each with a q and with a beta from 1e-4 to 1 - 1e-9."""
    for i, (x, q) in enumerate(hard_rows(count)):
        near_one = 1 - min(0.999, q - 1 if q < 2 else 1 / q)
        yield x, q, (near_one if i % 2 else min(1 / q, 1 - 1e-9))


def test_references_agree_with_fifty_digits():
    for x, q, beta in power_rows(100):
        where = f"x = {x.tolist()}, q = {q!r}, beta = {beta!r}"
        assert np.abs(sq_pnorm_max(x, q) - mp_sq_pnorm_max(x, q)).max() < 1e-14, where
        assert np.abs(renyimax(x, beta) - mp_renyimax(x, beta)).max() < 1e-14, where


def gap(gradient, p):
    """How much better than p any point of the simplex can be: the Frank-Wolfe gap."""
    return (gradient - gradient.max()) @ p


def test_references_are_optimal():
    """The gap bounds the objective's error from above, without knowing how p was found."""
    for x, q, beta in power_rows(200):
        if np.ptp(x) > 50 or not 1.05 < q < 50:
            continue  # the float64 residual below would measure itself
        x = x - x.max()
        p = sq_pnorm_max(x, q)
        slope = (p**q).sum() ** (2 / q - 1) * p ** (q - 1)
        assert abs(gap(x - slope, p)) < 1e-12
        p = renyimax(x, beta)
        slope = beta / (1 - beta) * p ** (beta - 1) / (p**beta).sum()
        assert abs(gap(x + slope, p)) < 1e-9 / (1 - beta)


def test_reference_at_infinity_is_the_limit(rng):
    x = randn(50, 6, rng=rng, scale=0.5).numpy()
    assert np.abs(sq_pnorm_max(x, INF) - sq_pnorm_max(x, 1e12)).max() < 1e-9


@both_backends
@wide
@pytest.mark.parametrize("p", [1.25, 1.5, 2.0, 3.0, 10.0, INF])
def test_squared_norm_is_one_hot_exactly_when_the_gap_is_one(p, dtype):
    x = torch.tensor([[1.0, 0.0, 0.0], [0.75, 0.0, 0.0]], dtype=dtype)
    got = fy.sq_pnorm_max(x, p)
    assert got[0].tolist() == [1.0, 0.0, 0.0]
    assert (got[1] > 0).all()
    scaled = fy.sq_pnorm_max(x, p, gamma=0.5)
    assert scaled[1].tolist() == [1.0, 0.0, 0.0]
    assert (fy.sq_pnorm_max(x, p, gamma=2.0) > 0).all()


@both_backends
@pytest.mark.parametrize(
    ("gamma", "dtype"),
    [
        *((gamma, torch.float64) for gamma in (0.25, 3.0, 1e-6, 1e6)),
        *((gamma, torch.float32) for gamma in (0.25, 3.0, 1e-6, 1e6)),
        *((gamma, torch.float16) for gamma in (0.25, 3.0)),
    ],
)
def test_gamma_is_a_temperature(gamma, dtype, rng):
    """f(x / gamma), also where x / gamma would be rounded at the size of a common shift."""
    x = (randn(6, 9, rng=rng) * 4 * gamma).to(dtype)
    x = x + (torch.tensor(1e4).to(dtype) if gamma >= 0.25 else 0)
    x[0, 0], x[1], x[2, 1], x[3, 2] = -INF, -INF, math.nan, INF
    leaf = x.clone().requires_grad_()
    p = fy.sq_pnorm_max(leaf, 1.5, gamma=gamma)
    truth = x.double() - x.double().amax(-1, keepdim=True).nan_to_num(0, 0, 0)
    expected = torch.from_numpy(sq_pnorm_max(truth.numpy() / gamma, 1.5))
    expected[2:4] = math.nan
    bound = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 5e-4}[dtype]
    torch.testing.assert_close(p.double(), expected, rtol=0, atol=bound, equal_nan=True)
    (g,) = torch.autograd.grad(p[[0, 1, 4, 5]], leaf, torch.ones(4, 9, dtype=dtype).cumsum(-1))
    assert g[[0, 1, 4, 5]].isfinite().all() and (g[1] == 0).all() and g[0, 0] == 0


@both_backends
@pytest.mark.parametrize("p", [1.5, 3.0])
def test_gradcheck_with_gamma(p):
    x = torch.tensor([[0.3, -0.1, 0.0, -4.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: fy.sq_pnorm_max(x, p, gamma=0.7), (x,))
    assert torch.autograd.gradgradcheck(lambda x: fy.sq_pnorm_max(x, p, gamma=0.7), (x,))


@both_backends
@wide
@pytest.mark.parametrize("p", [1 + 1e-12, 1 + 1e-9, 1.000001, 2 + 1e-9, 1e6, 1e12, 1e17, 1e19])
def test_extreme_exponents(p, dtype, rng):
    for scale in (1e-12, 1e-6, 0.3, 2.0):
        x = randn(20, 7, rng=rng, dtype=dtype, scale=scale)
        assert_matches_reference(MAPS["sq_pnorm_max"], x, fy.sq_pnorm_max(x, p), min(p, 1e17))


@both_backends
@wide
@pytest.mark.parametrize("beta", [1e-300, 1e-15, 1e-6, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53])
def test_extreme_orders(beta, dtype, rng):
    for scale in (1e-6, 1.0, 1e8):
        x = randn(20, 7, rng=rng, dtype=dtype, scale=scale)
        assert_matches_reference(MAPS["renyimax"], x, fy.renyimax(x, beta), beta)


@both_backends
def test_renyimax_falls_as_a_power():
    """p_i ~ (lambda - x_i)^-2 at beta = 1/2: a score 1e6 below keeps about 1e-12."""
    p = fy.renyimax(torch.tensor([0.0, -1e3, -1e6], dtype=torch.float64))
    assert (p > 0).all()
    assert p[1].item() == pytest.approx(1e-6, rel=0.01)
    assert p[2].item() == pytest.approx(1e-12, rel=0.01)


@both_backends
def test_squared_maximum_moves_with_its_last_entry():
    """At p = inf, x = [.7, 0] gives [m, 1 - m] with m = .7 - 0; x = [.3, 0] is stuck at a half."""
    x = torch.tensor([[0.7, 0.0, -2.0], [0.3, 0.0, -2.0]], dtype=torch.float64)
    got = torch.func.vmap(torch.func.jacrev(lambda x: fy.sq_pnorm_max(x, INF)))(x)
    eager = torch.stack([torch.autograd.functional.jacobian(lambda x: fy.sq_pnorm_max(x, INF), row)
                         for row in x])  # fmt: skip
    expected = torch.zeros(2, 3, 3, dtype=torch.float64)
    expected[0, :2, :2] = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(eager, expected)
    steep = torch.autograd.functional.jacobian(lambda x: fy.sq_pnorm_max(x, 1e9), x[0])
    torch.testing.assert_close(steep, expected[0], rtol=0, atol=1e-6)


@both_backends
@wide
@pytest.mark.parametrize("beta", [1 - 1e-5, 1 - 1e-8, 1 - 1e-10, 1 - 1e-14])
def test_renyimax_gradient_tends_to_that_of_softmax(beta, dtype, rng):
    x, w = randn(5, 9, rng=rng, dtype=dtype).requires_grad_(), randn(5, 9, rng=rng, dtype=dtype)
    (got,) = torch.autograd.grad(fy.renyimax(x, beta), x, w)
    (expected,) = torch.autograd.grad(torch.softmax(x, -1), x, w)
    bound = 20 * (1 - beta) + (1e-12 if dtype == torch.float64 else 1e-6)
    torch.testing.assert_close(got, expected, rtol=0, atol=bound)


@both_backends
@wide
@pytest.mark.parametrize("p", [1 + 1e-3, 1 + 1e-6, 1 + 1e-9])
def test_squared_norm_gradient_near_one(p, dtype, rng):
    """There the map is nearly softmax(x / (p − 1)), and so is its Jacobian."""
    x, w = randn(5, 9, rng=rng, dtype=torch.float64), randn(5, 9, rng=rng, dtype=dtype)
    leaf = (x * (p - 1)).to(dtype).requires_grad_()
    (got,) = torch.autograd.grad(fy.sq_pnorm_max(leaf, p), leaf, w)
    soft = (leaf.detach().double() / (p - 1)).requires_grad_()
    (expected,) = torch.autograd.grad(torch.softmax(soft, -1), soft, w.double())
    bound = 20 * (p - 1) + (1e-12 if dtype == torch.float64 else 1e-5)
    torch.testing.assert_close(got.double() * (p - 1), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("name", ["sq_pnorm_max", "renyimax"])
def test_a_tensor_with_gradient_is_refused_by_the_registered_op(name):
    x = torch.zeros(2, 3, requires_grad=True)
    parameter = torch.tensor(1.0, requires_grad=True)
    p = getattr(torch.ops.fenchel, name)(x, parameter, 1)
    with pytest.raises(fy.FenchelError, match="its parameter has no gradient"):
        p.sum().backward()


def test_defaults():
    x = torch.tensor([[-1.0, 0.2, 0.6, 0.5]])
    assert torch.equal(fy.sq_pnorm_max(x), fy.sq_pnorm_max(x, 1.5, gamma=1.0))
    assert torch.equal(fy.renyimax(x), fy.renyimax(x, 0.5))
    assert not torch.equal(fy.sq_pnorm_max(x), fy.sq_pnorm_max(x, gamma=2.0))
