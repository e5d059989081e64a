"""The solver for any smooth convex function on the simplex, against closed forms and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor

import fenchel as fy
from fenchel.solvers import SimplexSolution, regularized_argmax

F64 = torch.float64
INF = math.inf


def gini(p: Tensor) -> Tensor:
    return 0.5 * (p * p).sum(-1)


def tsallis(alpha: float):
    return lambda p: (p**alpha - p).sum(-1) / (alpha * (alpha - 1))


def shannon(p: Tensor) -> Tensor:
    return (p * p.clamp_min(1e-300).log()).sum(-1)


def squared_norm(p: Tensor) -> Tensor:
    return 0.5 * torch.linalg.vector_norm(p, 1.5, dim=-1) ** 2


def chain(p: Tensor) -> Tensor:
    """Neighbours that repel each other; convex, because 2 · 0.4 < 1."""
    return 0.5 * (p * p).sum(-1) + 0.4 * (p[..., 1:] * p[..., :-1]).sum(-1)


_MIX = torch.randn(4, 6, generator=torch.Generator().manual_seed(3), dtype=F64)


def soft_worst(p: Tensor) -> Tensor:
    """A smoothed maximum over mixtures, and a little curvature."""
    return (p @ _MIX.T).logsumexp(-1) + 0.1 * (p * p).sum(-1)


CLOSED = {
    "gini": (gini, fy.sparsemax),
    "shannon": (shannon, fy.softmax),
    "tsallis1.2": (tsallis(1.2), lambda x: fy.entmax(x, 1.2)),
    "tsallis1.5": (tsallis(1.5), fy.entmax15),
    "tsallis3": (tsallis(3.0), lambda x: fy.entmax(x, 3.0)),
    "norm2": (lambda p: torch.linalg.vector_norm(p, dim=-1), lambda x: fy.normmax(x, 2.0)),
}
OPEN = {"squared_norm": squared_norm, "chain": chain, "soft_worst": soft_worst}
EVERY = {name: f for name, (f, _) in CLOSED.items()} | OPEN

closed = pytest.mark.parametrize(("f", "truth"), CLOSED.values(), ids=CLOSED)
unknown = pytest.mark.parametrize("f", OPEN.values(), ids=OPEN)
every = pytest.mark.parametrize("f", EVERY.values(), ids=EVERY)


def randn(*shape: int, rng, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=rng, dtype=F64)


def value(f, scores: Tensor, p: Tensor) -> Tensor:
    return (scores * p).sum(-1) - f(p.clamp_min(1e-300))


def by_scipy(f, scores: Tensor) -> np.ndarray:
    """Sequential quadratic programming: no projection, no step of ours."""

    def negative(p):
        p = torch.tensor(np.maximum(p, 1e-14), requires_grad=True)
        result = f(p) - (scores * p).sum()
        (slope,) = torch.autograd.grad(result, p)
        return float(result.detach()), slope.numpy()

    n = len(scores)
    best = optimize.minimize(
        negative,
        np.full(n, 1 / n),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(n)},
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return best.x


@closed
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_matches_closed_forms(f, truth, scale, rng):
    scores = randn(20, 7, rng=rng, scale=scale)
    solution = regularized_argmax(f, scores)
    assert solution.converged.all()
    torch.testing.assert_close(solution.p, truth(scores), rtol=0, atol=1e-12)
    assert torch.equal(solution.p > 0, truth(scores) > 0)


@unknown
def test_matches_scipy_without_a_closed_form(f, rng):
    scores = randn(6, 6, rng=rng, scale=0.7)
    solution = regularized_argmax(f, scores)
    for row, p in zip(scores, solution.p, strict=True):
        best = torch.from_numpy(by_scipy(f, row))
        assert float(value(f, row, p)) >= float(value(f, row, best)) - 1e-14
        np.testing.assert_allclose(p, best, rtol=0, atol=1e-7)


def test_squared_norm_matches_a_root(rng):
    # u = [x - tau]^(1/(q-1)), p = u / |u|_q^(2-q), and tau makes it sum to 1.
    scores, q = randn(10, 6, rng=rng), 1.5

    def answer(x, tau):
        u = np.maximum(x - tau, 0) ** (1 / (q - 1))
        return u / (u**q).sum() ** ((2 - q) / q)

    p = regularized_argmax(squared_norm, scores).p
    for x, got in zip(scores.numpy(), p.numpy(), strict=True):
        tau = optimize.brentq(
            lambda t, x=x: answer(x, t).sum() - 1, x.max() - 1, x.max() - 1e-9, xtol=1e-15
        )
        np.testing.assert_allclose(got, answer(x, tau), rtol=0, atol=1e-12)


@every
def test_gap_bounds_the_suboptimality(f, rng):
    scores = randn(20, 6, rng=rng)
    best = value(f, scores, regularized_argmax(f, scores).p)
    for steps in (1, 2, 5, 20):
        early = regularized_argmax(f, scores, max_iter=steps)
        missing = best - value(f, scores, early.p)
        assert (missing <= early.gap + 1e-14).all()
        assert (early.iterations <= steps).all()
        assert (early.p >= 0).all() and ((early.p.sum(-1) - 1).abs() < 1e-12).all()


@every
def test_reports_what_it_did(f, rng):
    scores = randn(3, 5, 6, rng=rng)
    solution = regularized_argmax(f, scores)
    assert isinstance(solution, SimplexSolution)
    assert solution.p.shape == scores.shape
    assert solution.gap.shape == solution.iterations.shape == solution.converged.shape == (3, 5)
    assert solution.gap.max() < 1e-13 and solution.gap.min() >= 0
    assert solution.iterations.min() >= 1


def test_tol_and_max_iter_decide(rng):
    scores = randn(20, 6, rng=rng)
    assert not regularized_argmax(tsallis(1.5), scores, max_iter=1).converged.any()
    assert regularized_argmax(tsallis(1.5), scores, max_iter=1, tol=10.0).converged.all()
    few = regularized_argmax(tsallis(1.5), scores, tol=1e-2).iterations
    many = regularized_argmax(tsallis(1.5), scores, tol=1e-10).iterations
    assert few.sum() < many.sum()


# What torch rounds the same wherever an entry lies in memory: pow, log and products with matrices
# go through vector units or not, depending on how many rows there are.
BITWISE = {
    "gini": gini,
    "chain": chain,
    "tsallis1.5": lambda p: (p * p.sqrt() - p).sum(-1) / 0.75,
    "tsallis3": lambda p: (p * p * p - p).sum(-1) / 6,
}


@pytest.mark.parametrize("f", BITWISE.values(), ids=BITWISE)
def test_a_row_does_not_see_its_batch(f, rng):
    scores = spread_rows(rng)
    together = regularized_argmax(f, scores)
    for i in range(0, len(scores), 3):
        alone = regularized_argmax(f, scores[i : i + 1])
        assert torch.equal(alone.p[0], together.p[i])
        assert alone.gap[0] == together.gap[i]
        assert alone.iterations[0] == together.iterations[i]
    shuffled = torch.randperm(len(scores), generator=rng)
    assert torch.equal(regularized_argmax(f, scores[shuffled]).p, together.p[shuffled])


@every
def test_a_row_sees_of_its_batch_only_how_omega_rounds(f, rng):
    scores = spread_rows(rng)
    together = regularized_argmax(f, scores).p
    alone = torch.cat([regularized_argmax(f, row).p for row in scores[::5].split(1)])
    torch.testing.assert_close(alone, together[::5], rtol=0, atol=1e-13)


def spread_rows(rng) -> Tensor:
    """From nearly uniform to one-hot, so that rows need different numbers of steps."""
    return randn(40, 6, rng=rng) * torch.logspace(-1, 1.3, 40, dtype=F64).unsqueeze(-1)


@closed
def test_masks(f, truth, rng):
    scores = randn(8, 6, rng=rng)
    scores[:, 2] = -INF
    scores[1, 1:] = -INF
    p = regularized_argmax(f, scores).p
    assert (p[:, 2] == 0).all()
    assert p[1].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    torch.testing.assert_close(p, truth(scores), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, INF])
@pytest.mark.parametrize("f", [gini, shannon], ids=["gini", "shannon"])
def test_bad_rows_stay_alone(f, bad, rng):
    scores = randn(4, 5, rng=rng)
    good = regularized_argmax(f, scores)
    scores[1, 3], scores[2] = bad, -INF
    solution = regularized_argmax(f, scores)
    assert solution.p[1].isnan().all() and solution.gap[1].isnan() and not solution.converged[1]
    assert (solution.p[2] == 0).all() and solution.gap[2] == 0 and solution.converged[2]
    assert torch.equal(solution.p[[0, 3]], good.p[[0, 3]])


@closed
def test_shifts_and_scales(f, truth, rng):
    scores = randn(6, 5, rng=rng)
    p = regularized_argmax(f, scores).p
    torch.testing.assert_close(regularized_argmax(f, scores + 1e6).p, p, rtol=0, atol=1e-9)
    far = regularized_argmax(f, 1e9 * scores)
    assert far.converged.all()
    torch.testing.assert_close(far.p, fy.entmax(1e9 * scores, INF), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 300])
def test_sizes(n, rng):
    scores = randn(3, n, rng=rng, scale=3)
    p = regularized_argmax(tsallis(1.5), scores).p
    torch.testing.assert_close(p, fy.entmax15(scores), rtol=0, atol=1e-12)
    assert regularized_argmax(gini, scores[:0]).p.shape == (0, n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_half_and_single_are_solved_in_double(dtype, rng):
    scores = randn(4, 6, rng=rng).to(dtype)
    solution = regularized_argmax(tsallis(1.5), scores)
    assert solution.p.dtype == dtype and solution.gap.dtype == F64
    assert torch.equal(solution.p, regularized_argmax(tsallis(1.5), scores.double()).p.to(dtype))


def test_tiny_probabilities_stay_above_zero():
    scores = torch.tensor([[0.0, -20.0, -40.0, -80.0]], dtype=F64)
    p = regularized_argmax(shannon, scores).p
    torch.testing.assert_close(p, scores.softmax(-1), rtol=0, atol=1e-15)
    assert (p > 0).all()


HARD = {
    "barrier": lambda p: -1e-3 * p.log().sum(-1),
    "inverse": lambda p: 1e-4 * (1 / p).sum(-1),
    "steep": lambda p: -2 * p.sqrt().sum(-1).log(),
    "badly_scaled": lambda p: 0.5 * (torch.logspace(-6, 6, 10, dtype=F64) * p * p).sum(-1),
    "nearly_linear": lambda p: 5e-7 * (p * p).sum(-1),
    "sharp": lambda p: 0.01 * (100 * p).logsumexp(-1),
}


@pytest.mark.parametrize("f", HARD.values(), ids=HARD)
def test_hard_functions(f, rng):
    solution = regularized_argmax(f, randn(30, 10, rng=rng))
    assert solution.converged.all() and solution.gap.max() < 1e-10


def test_a_slope_that_jumps_next_to_zero(rng):
    # Common, though not smooth: the logarithm of a clamped probability.
    scores = randn(30, 6, rng=rng, scale=10)
    solution = regularized_argmax(lambda p: (p * p.clamp_min(1e-12).log()).sum(-1), scores)
    assert solution.converged.all()
    torch.testing.assert_close(solution.p, scores.softmax(-1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("strongly_convex", [True, False])
def test_functions_without_a_second_derivative(strongly_convex, rng):
    # |p - 1/2| bends nowhere, its square root too much: no answer is promised, but one comes.
    def rough(p):
        return (p - 0.5).abs().sum(-1) + (p - 0.2).abs().sqrt().sum(-1)

    solution = regularized_argmax(
        rough, randn(5, 4, rng=rng), max_iter=60, strongly_convex=strongly_convex
    )
    assert solution.p.isfinite().all() and not solution.gap.isnan().any()


def test_several_threads(threads, rng):
    threads(2)  # torch's batched LU fails there: pytorch/pytorch#142815
    scores = randn(4, 200, rng=rng, scale=0.1)
    p = regularized_argmax(tsallis(1.5), scores).p
    torch.testing.assert_close(p, fy.entmax15(scores), rtol=0, atol=1e-12)


def test_functions_of_one_row(rng):
    # With as many rows as entries, a function of one row must not be taken for one of many.
    matrix = torch.eye(6, dtype=F64) + 0.1
    scores = randn(6, 6, rng=rng)
    one = regularized_argmax(lambda p: 0.5 * p @ matrix @ p, scores).p
    many = regularized_argmax(lambda p: 0.5 * ((p @ matrix) * p).sum(-1), scores).p
    torch.testing.assert_close(one, many, rtol=0, atol=1e-12)
    log_sum = regularized_argmax(lambda p: (matrix @ p).logsumexp(0) + p @ p, scores).p
    batched = regularized_argmax(lambda p: (p @ matrix).logsumexp(-1) + gini(2**0.5 * p), scores).p
    torch.testing.assert_close(log_sum, batched, rtol=0, atol=1e-12)


def test_flat_functions():
    # Only the first two entries are penalised: the others share what is left, in any way.
    scores = torch.tensor([[0.3, 0.1, 0.0, 0.0, -5.0]], dtype=F64)

    def flat(p):
        return 0.5 * (p[..., :2] ** 2).sum(-1)

    for strongly_convex in (True, False):
        solution = regularized_argmax(flat, scores, strongly_convex=strongly_convex)
        assert solution.converged.all()
        expected = torch.tensor([0.3, 0.1, 0.6, 0.0], dtype=F64)
        p = solution.p[0]
        got = torch.stack([p[0], p[1], p[2] + p[3], p[4]])
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.0]}, "torch.Tensor"),
        ({"scores": torch.zeros(2, 0)}, "at least one entry"),
        ({"omega": 3}, "function of probabilities"),
        ({"omega": lambda p: p}, r"shape \(2,\) .* got shape \(2, 3\)"),
        ({"tol": 0}, "finite number above 0"),
        ({"tol": "small"}, "`tol` to be a number"),
        ({"max_iter": 0}, "int of at least 1"),
        ({"max_iter": 2.5}, "int of at least 1"),
        ({"max_iter": True}, "int of at least 1"),
    ],
)
def test_errors(change, message):
    arguments = {"omega": gini, "scores": torch.zeros(2, 3)} | change
    with pytest.raises(fy.FenchelError, match=message):
        regularized_argmax(**arguments)
