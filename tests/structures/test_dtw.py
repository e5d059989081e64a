from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from fenchel.structures import Alignment, dtw, soft_dtw, soft_dtw_divergence
from tests.structures.members import members_of


def costs(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def path_costs(cost: torch.Tensor) -> torch.Tensor:
    flat = cost.flatten()
    return torch.stack([flat[list(path)].sum() for path in members_of(Alignment(), *cost.shape)])


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (5, 1), (3, 4), (4, 4)], ids=str)
def test_dtw_is_the_cheapest_path_and_its_gradient_that_path(
    size: tuple[int, int], backend: str
) -> None:
    cost = costs(*size).requires_grad_()
    value = dtw(cost)
    assert float(value.detach()) == pytest.approx(float(path_costs(cost.detach()).min()), rel=1e-14)
    value.backward()
    assert torch.equal(cost.grad, Alignment().argmax(-cost.detach()))


@pytest.mark.parametrize(
    ("m", "n", "value"),
    [(1, 1, 0.0), (1, 6, 0.0), (2, 2, -1.098612), (3, 3, -2.564949), (4, 3, -3.218876)],
)
@pytest.mark.parametrize("gamma", [1.0, 0.01, 25.0])
def test_zero_costs_count_paths(m: int, n: int, value: float, gamma: float, backend: str) -> None:
    found = soft_dtw(torch.zeros(m, n, dtype=torch.float64), gamma)
    assert float(found) / gamma == pytest.approx(value, abs=1e-6)


def test_soft_dtw_is_a_soft_minimum_over_paths(backend: str) -> None:
    for gamma in (0.05, 1.0, 7.0):
        cost = costs(3, 4, seed=1).requires_grad_()
        value = soft_dtw(cost, gamma)
        paths = path_costs(cost)
        expected = -gamma * (-paths / gamma).logsumexp(0)
        assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-13)
        (found,) = torch.autograd.grad(value, cost)
        (wanted,) = torch.autograd.grad(expected, cost)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-13)
        assert found[0, 0] == 1 and found[-1, -1] == 1


def test_soft_dtw_matches_a_fixed_number_made_elsewhere(backend: str) -> None:
    # tslearn 0.10.0 and pysdtw 0.0.5 (in float64) both give these two.
    x = torch.linspace(0, 3, 7, dtype=torch.float64).sin()
    y = torch.linspace(0, 2, 5, dtype=torch.float64).cos()
    cost = (x[:, None] - y).square()
    assert float(soft_dtw(cost, 1.0)) == pytest.approx(-4.080484881688, abs=1e-9)
    assert float(soft_dtw(cost, 0.1)) == pytest.approx(1.287569778212, abs=1e-9)


def test_soft_dtw_goes_to_dtw(backend: str) -> None:
    cost = costs(2, 6, 5, seed=2)
    torch.testing.assert_close(soft_dtw(cost, 1e-9), dtw(cost), rtol=0, atol=1e-8)
    assert bool((soft_dtw(cost, 0.5) < dtw(cost)).all())


def test_gradients(backend: str) -> None:
    cost = costs(2, 3, 2, seed=3).requires_grad_()
    lengths = torch.tensor([[3, 2], [2, 2]])
    assert torch.autograd.gradcheck(lambda c: soft_dtw(c, 0.4, lengths=lengths), cost)
    assert torch.autograd.gradgradcheck(lambda c: soft_dtw(c, 0.4, lengths=lengths), cost)
    assert torch.autograd.gradcheck(lambda c: dtw(c, lengths=lengths), cost)


def test_lengths_bands_and_masks(backend: str) -> None:
    cost = costs(2, 5, 4, seed=4)
    lengths = torch.tensor([[5, 4], [3, 2]])
    padded = cost.clone()
    padded[1, 3:], padded[1, :, 2:] = math.nan, -math.inf
    for function in (dtw, soft_dtw):
        found = function(padded, lengths=lengths)
        assert found.shape == (2,)
        assert torch.equal(found[1], function(cost[1, :3, :2].contiguous()))
        banded = function(cost, band=0.5)
        assert bool((banded > function(cost)).any())
        blocked = cost.clone()
        blocked[:, 0, 1:] = math.inf
        assert bool((function(blocked) >= function(cost)).all())
        assert bool(function(blocked).isfinite().all())
    assert soft_dtw(cost.float()).dtype == torch.float32


def test_large_costs(backend: str) -> None:
    cost = (1e4 * costs(3, 30, 20, seed=5)).requires_grad_()
    value = soft_dtw(cost)
    torch.testing.assert_close(value, dtw(cost), rtol=1e-3, atol=0)
    (gradient,) = torch.autograd.grad(value.sum(), cost)
    assert bool(gradient.isfinite().all()) and bool((gradient[:, -1, -1] == 1).all())


def test_divergence_is_zero_at_itself_and_positive_elsewhere(backend: str) -> None:
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(3, 5, 2, dtype=torch.float64, generator=generator)
    y = torch.randn(3, 4, 2, dtype=torch.float64, generator=generator)

    def cost(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.unsqueeze(2) - b.unsqueeze(1)).square().sum(-1)

    assert bool((soft_dtw(cost(x, x)) < 0).all())
    assert torch.equal(
        soft_dtw_divergence(cost(x, x), cost(x, x), cost(x, x)), torch.zeros(3).double()
    )
    found = soft_dtw_divergence(cost(x, y), cost(x, x), cost(y, y), 0.5)
    expected = soft_dtw(cost(x, y), 0.5)
    expected = expected - 0.5 * (soft_dtw(cost(x, x), 0.5) + soft_dtw(cost(y, y), 0.5))
    torch.testing.assert_close(found, expected)
    assert bool((found > 0).all())
    short = soft_dtw_divergence(
        cost(x, y), cost(x, x), cost(y, y), lengths=torch.tensor([[5, 4], [2, 4], [5, 3]])
    )
    a, b = x[1:2, :2], y[1:2]
    assert torch.equal(short[1:2], soft_dtw_divergence(cost(a, b), cost(a, a), cost(b, b)))


def test_errors() -> None:
    with pytest.raises(fy.FenchelError) as error:
        soft_dtw(torch.zeros(2, 2), 0.0)
    assert str(error.value) == "soft_dtw: `gamma` must be a number above 0 (0 is `dtw`); got 0.0."
    for bad in (math.nan, -math.inf):
        with pytest.raises(fy.FenchelError) as error:
            dtw(torch.tensor([[[0.0]], [[bad]]]))
        assert str(error.value) == (
            "dtw: expected finite costs (or +inf, a mask), but instance 1 of the batch has NaN or "
            "-inf."
        )
    with pytest.raises(fy.FenchelError, match="widen the band"):
        dtw(torch.zeros(4, 3), band=0.1)
    with pytest.raises(fy.FenchelError) as error:
        soft_dtw_divergence(torch.zeros(2, 3), torch.zeros(2, 2), torch.zeros(2, 2))
    assert str(error.value) == (
        "soft_dtw_divergence: expected `cost_yy` of shape (3, 3) for `cost_xy` of shape (2, 3), "
        "but got (2, 2)."
    )
