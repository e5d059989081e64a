"""Literal answers, and a check that the references deserve to be called the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fenchel as fy
from tests.maps.cases import INF, MAPS, assert_matches_reference
from tests.reference import (
    REFERENCE,
    mp_entmax,
    mp_entmax_dalpha,
    mp_normmax,
    normmax_uncertainty,
)

both_backends = pytest.mark.usefixtures("backend")

wide = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def values(p: torch.Tensor) -> list[float]:
    return p.double().tolist()


# fmt: off
TABLE = [  # map, parameter, scores, answer
    ("softmax",   None, [-2.0, 0.0, 0.5],  [0.0486, 0.3592, 0.5922]),
    ("sparsemax", None, [-2.0, 0.0, 0.5],  [0.0, 0.25, 0.75]),
    ("entmax15",  None, [-2.0, 0.0, 0.5],  [0.0, 0.3260, 0.6740]),
    ("entmax",    1.0,  [-2.0, 0.0, 0.5],  [0.0486, 0.3592, 0.5922]),
    ("entmax",    1.5,  [-2.0, 0.0, 0.5],  [0.0, 0.3260, 0.6740]),
    ("entmax",    2.0,  [-2.0, 0.0, 0.5],  [0.0, 0.25, 0.75]),
    ("entmax",    INF,  [-2.0, 0.0, 0.5],  [0.0, 0.0, 1.0]),
    ("entmax",    1.33, [-1.0, 0.0, 0.5],  [0.0460, 0.3276, 0.6264]),
    ("entmax",    None, [2.0, 0.0, 0.0],   [1.0, 0.0, 0.0]),
    ("entmax15",  None, [2.0, 0.0, 0.0],   [1.0, 0.0, 0.0]),
    ("normmax",   2.0,  [-2.0, 0.0, 0.5],  [0.0, 0.3110, 0.6890]),
    ("normmax",   None, [-2.0, 0.0, 0.5],  [0.0, 0.3110, 0.6890]),
    ("normmax",   1.0,  [-2.0, 0.0, 0.5],  [0.0, 0.0, 1.0]),
    ("normmax",   INF,  [-2.0, 0.0, 0.5],  [0.0, 0.5, 0.5]),
    ("normmax",   3.0,  [1.0, 0.0, -3.0],  [1.0, 0.0, 0.0]),
    ("budget",    1.0,  [-2.0, 0.0, 0.5],  [0.0, 0.25, 0.75]),
    ("budget",    None, [-2.0, 0.0, 0.5],  [0.0, 1.0, 1.0]),
    ("budget",    1.5,  [-2.0, 0.0, 0.5],  [0.0, 0.5, 1.0]),
    ("budget",    2.0,  [0.0, 0.0, 0.0],   [2 / 3, 2 / 3, 2 / 3]),
    ("budget",    0.5,  [0.0, 0.0, -1.0],  [0.25, 0.25, 0.0]),
    ("budget",    4.0,  [-2.0, 0.0, 0.5],  [1.0, 1.0, 1.0]),
]
# fmt: on


@both_backends
@wide
@pytest.mark.parametrize(("name", "param", "scores", "answer"), TABLE)
def test_table(name, param, scores, answer, dtype):
    p = values(MAPS[name](torch.tensor(scores, dtype=dtype), param))
    assert p == pytest.approx(answer, abs=5e-5)
    for got, expected in zip(p, answer, strict=True):
        if expected in (0.0, 1.0):  # zeros are zeros, not small numbers
            assert got == expected


@both_backends
@wide
@pytest.mark.parametrize(
    ("alpha", "answer"), [(2, 0.505), (4, 0.519989), (10, 0.765254), (50, 0.985547)]
)
def test_large_alpha_keeps_the_small_coordinate(alpha, answer, dtype):
    p = fy.entmax(torch.tensor([0.01, 0.0], dtype=dtype), alpha=float(alpha))
    assert p[0].item() == pytest.approx(answer, abs=1e-6)
    assert p[1].item() == pytest.approx(1 - answer, abs=1e-6)
    assert p[1] > 0


@both_backends
@wide
@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0, 5.0, 33.0])
def test_one_hot_exactly_when_the_margin_is_met(alpha, dtype):
    margin = 1 / (alpha - 1)  # exact in binary for these alphas
    x = torch.tensor([[margin, 0, 0], [margin * (1 - 1e-3), 0, 0]], dtype=dtype)
    p = fy.entmax(x, alpha=alpha)
    assert values(p[0]) == [1.0, 0.0, 0.0]
    assert (p[1] > 0).all()
    beyond = fy.entmax(x[:1] + torch.tensor([1e-3, 0, 0], dtype=dtype), alpha=alpha)
    assert values(beyond[0]) == [1.0, 0.0, 0.0]


@both_backends
@wide
@pytest.mark.parametrize("alpha", [1.25, 2.0, 3.0, 10.0, INF])
def test_normmax_is_one_hot_exactly_when_the_gap_is_one(alpha, dtype):
    x = torch.tensor([[1.0, 0.0, 0.0], [0.75, 0.0, 0.0]], dtype=dtype)
    p = fy.normmax(x, q=alpha)
    assert values(p[0]) == [1.0, 0.0, 0.0]
    assert (p[1] > 0).all()


@both_backends
def test_support_is_the_number_of_positive_probabilities():
    p = fy.entmax15(torch.tensor([2.0, 0.0, 0.0]))
    assert int((p > 0).sum()) == 1


@both_backends
@wide
@pytest.mark.parametrize(("alpha", "distance"), [(1.01, 0.155), (1.001, 0.0146), (1.0, 0.0)])
def test_alpha_near_one_is_not_softmax(alpha, distance, dtype):
    x = torch.tensor(np.random.default_rng(1).normal(size=1000), dtype=dtype)
    soft, p = fy.softmax(x), fy.entmax(x, alpha=alpha)
    assert float((p - soft).abs().max() / soft.max()) == pytest.approx(distance, rel=0.01, abs=1e-6)
    assert_matches_reference(MAPS["entmax"], x, p, alpha)


@both_backends
@wide
@pytest.mark.parametrize("alpha", [1 + 1e-14, 1 + 1e-12, 1 + 1e-9, 1 + 1e-6])
def test_alpha_at_the_edge_of_one_tends_to_softmax(alpha, dtype):
    x = torch.tensor([-3.0, 0.1, 0.2, 1.7], dtype=dtype)
    torch.testing.assert_close(
        fy.entmax(x, alpha=alpha), fy.softmax(x), rtol=0, atol=1e-6 if alpha < 1 + 1e-7 else 1e-5
    )
    assert_matches_reference(MAPS["entmax"], x, fy.entmax(x, alpha=alpha), alpha)


@both_backends
@wide
@pytest.mark.parametrize("name", ["entmax", "normmax"])
def test_infinite_alpha(name, dtype):
    x = torch.tensor([[1.0, 3.0, 3.0, -1.0], [5.0, 1.0, 0.0, -2.0]], dtype=dtype)
    assert values(MAPS[name](x, INF)) == [[0, 0.5, 0.5, 0], [1, 0, 0, 0]]


@both_backends
@pytest.mark.parametrize(
    ("name", "param", "scores"),
    [
        # Subtracting the maximum from all scores rounds away what tells the low ones apart.
        ("budget", 2.0, [15870236.1, -15850213.57047186, -15850213.584010232]),
        ("entmax", 13.96, [0.0018913876916004653, 3.182097712239001e-08, 3.192183070926232e-08]),
        # At 1e8 a float64 threshold has steps of 1e-8: it must be measured from a score nearby.
        ("budget", 0.5, [100000000.05, 100000000.05, 100000000.1, 99999999.9]),
        # Close to 1 the exponent 1/(alpha-1) multiplies the rounding of the threshold.
        ("normmax", 1.0000012853682072, [-1.2664027824445541e-09, -4.655223674180439e-09]),
        ("normmax", 1.0000023284204256, [0.016624948863160693, 0.016628625]),
    ],
    ids=["budget-spread", "entmax-spread", "budget-shift", "normmax-near-ties", "normmax-near-one"],
)
def test_hard_rows_found_by_fuzzing(name, param, scores):
    x = torch.tensor(scores, dtype=torch.float64)
    assert_matches_reference(MAPS[name], x, MAPS[name](x, param), param)


@pytest.mark.parametrize("name", ["entmax", "normmax"])
@pytest.mark.parametrize("alpha", [0.999, 0.0, -1.0, -math.inf, math.nan])
def test_alpha_out_of_range_is_refused(name, alpha):
    if name == "entmax" and alpha > 0:  # dense, but there
        assert (fy.entmax(torch.tensor([9.0, 0.0]), alpha) > 0).all()
        return
    with pytest.raises(fy.FenchelError, match=f"`{MAPS[name].parameter}` must be"):
        MAPS[name](torch.zeros(3), alpha)


def test_budget_beyond_the_length_is_refused_as_a_number():
    with pytest.raises(fy.FenchelError, match="`k` must be at most the 3 entries"):
        fy.budget(torch.zeros(2, 3), k=4)
    assert fy.budget(torch.zeros(3), k=torch.tensor(4.0)).tolist() == [1, 1, 1]


def test_fenchel_error_is_a_value_error():
    assert issubclass(fy.FenchelError, ValueError)


@both_backends
def test_defaults():
    x = torch.tensor([[-1.0, 0.2, 0.6, 0.5]])
    assert torch.equal(fy.entmax(x), fy.entmax(x, 1.5))
    assert torch.equal(fy.normmax(x), fy.normmax(x, 2.0))
    assert torch.equal(fy.budget(x), fy.budget(x, 2.0))


# ------------------------------------------------------------------------- the references' truth


def hard_rows(count: int):
    """Rows with ties, shifts and scales from 1e-8 to 1e8, each with an alpha from 1+1e-6 to 1e4."""
    draw = np.random.default_rng(7)
    for _ in range(count):
        n, scale = draw.integers(1, 13), 10 ** draw.uniform(-8, 8)
        x = [
            draw.normal(size=n) * scale,
            draw.integers(-2, 3, size=n) * scale,
            draw.normal(size=n) * 10 ** draw.uniform(-2, 1) + 10 ** draw.uniform(0, 8),
            draw.integers(-8, 9, size=n) / 8,
        ][draw.integers(4)]
        alpha = [
            1 + 10 ** draw.uniform(-6, 0),
            2 + 10 ** draw.uniform(-3, 4),
            draw.choice([1.25, 1.5, 2, 2.5, 3, 4, 10, 50, 1e4]),
        ][draw.integers(3)]
        yield x, float(alpha)


def test_references_agree_with_fifty_digits():
    for x, alpha in hard_rows(200):
        where = f"x = {x.tolist()}, alpha = {alpha!r}"
        assert np.abs(REFERENCE["entmax"](x, alpha) - mp_entmax(x, alpha)).max() < 1e-14, where
        for name, closed in (("softmax", 1), ("entmax15", 1.5), ("sparsemax", 2)):
            assert np.abs(REFERENCE[name](x) - mp_entmax(x, closed)).max() < 1e-14, where
        error = np.abs(REFERENCE["normmax"](x, alpha) - mp_normmax(x, alpha)).max()
        assert error < 1e-14 + normmax_uncertainty(x, alpha).max(), where


def test_fifty_digits_meet_the_optimality_conditions():
    """On the support x_i − p_i^(α−1)/(α−1) is one constant tau; off it x_i ≤ tau; the sum is 1."""
    for x, alpha in hard_rows(200):
        if np.ptp(x) > 10 or alpha > 20:
            continue  # the float64 residual below would measure itself
        p = mp_entmax(x, alpha)
        thresholds = (x - x.max()) - p ** (alpha - 1) / (alpha - 1)
        tau = thresholds[p > 0]
        scale = 1 / (alpha - 1)
        assert p.sum() == pytest.approx(1, abs=1e-14)
        assert np.ptp(tau) <= 1e-7 * max(1, scale)
        assert (x - x.max())[p == 0].max(initial=-np.inf) <= tau.max() + 1e-7 * max(1, scale)


def test_reference_budget_agrees_with_an_enumeration_of_its_pieces():
    draw = np.random.default_rng(3)
    for _ in range(300):
        x = draw.choice([draw.normal(size=6), draw.integers(-4, 5, size=6) / 4])
        k = float(draw.choice([0.5, 1, 1.5, 2, 2.7, 5]))
        breaks = np.unique(np.concatenate([x, x - 1]))
        sums = np.clip(x - breaks[:, None], 0, 1).sum(-1)  # falls, linear between the breaks
        tau = np.interp(-k, -sums, breaks)
        expected = np.clip(x - tau, 0, 1)
        assert np.abs(REFERENCE["budget"](x, k) - expected).max() < 1e-13


@both_backends
def test_gradient_in_alpha_of_the_paper_example():
    alpha = torch.tensor(1.33, dtype=torch.float64, requires_grad=True)
    p = fy.entmax(torch.tensor([-1.0, 0.0, 0.5], dtype=torch.float64), alpha=alpha)
    (slope,) = torch.autograd.grad(p[0], alpha)
    assert slope.item() == pytest.approx(-0.2562, abs=5e-5)
    assert mp_entmax_dalpha([-1, 0, 0.5], 1.33)[0] == pytest.approx(slope.item(), abs=1e-9)
