from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import fenchel as fy
from fenchel.solvers import sinkhorn, sinkhorn_solve
from fenchel.structures import Assignment

SHAPES = [(1, 1), (4, 4), (3, 5), (5, 3), (1, 3), (3, 1)]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_plan_is_optimal(shape: tuple[int, int]) -> None:
    """Against a general solver for the same concave problem."""
    scores, gamma = random(*shape, seed=1), 0.5
    plan = sinkhorn(scores, gamma, tol=1e-12)
    n, m = shape
    theta = scores.numpy().ravel()

    def loss(x):
        p = x.clip(1e-300)
        return -(theta @ x) + gamma * (p * np.log(p)).sum()

    sums = [("eq" if n <= m else "ineq", (i, slice(None))) for i in range(n)]
    sums += [("eq" if m <= n else "ineq", (slice(None), j)) for j in range(m)]
    if n == m:
        sums.pop()  # follows from the others, and the solver stumbles over that
    constraints = [
        {"type": kind, "fun": lambda x, where=where: 1 - x.reshape(n, m)[where].sum()}
        for kind, where in sums
    ]
    start = [1 / max(n, m)] * (n * m)
    best = minimize(
        loss,
        start,
        bounds=[(1e-12, 1)] * (n * m),
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    torch.testing.assert_close(plan, torch.from_numpy(best.x).reshape(n, m), rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_conditions_of_optimality(shape: tuple[int, int]) -> None:
    scores = random(2, *shape, seed=2)
    plan = sinkhorn(scores, 0.3, tol=1e-12)
    n, m = shape
    rows, columns = plan.sum(2), plan.sum(1)
    for sums, short in ((rows, n <= m), (columns, m <= n)):
        if short:
            torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-11)
        else:
            assert bool((sums <= 1 + 1e-11).all())
    # log P minus the scores is a sum of potentials of rows and columns.
    rest = plan.log() - scores / 0.3
    mixed = rest[:, :1, :1] + rest - rest[:, :, :1] - rest[:, :1, :]
    torch.testing.assert_close(mixed, torch.zeros_like(mixed), rtol=0, atol=1e-9)


def test_low_temperature_is_the_best_assignment() -> None:
    scores = random(3, 5, 5, seed=3)
    scores += 4 * torch.eye(5).flip(0)  # with a clear winner, or it would take very long
    plan = sinkhorn(scores, 0.1)
    torch.testing.assert_close(plan, Assignment().argmax(scores), rtol=0, atol=1e-3)


def test_large_scores_and_masks_stay_finite() -> None:
    scores = 1e4 * random(4, 4, seed=4)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[0, 1:3] = False
    leaf = scores.requires_grad_()
    plan = sinkhorn(leaf, 1e4, mask=mask)
    assert not plan[~mask].any()
    torch.testing.assert_close(plan.sum(0), torch.ones(4).double(), rtol=0, atol=1e-5)
    plan.square().sum().backward()
    assert bool(leaf.grad.isfinite().all()) and not leaf.grad[~mask].any()


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2)], ids=str)
def test_derivatives_are_those_of_the_solution(shape: tuple[int, int]) -> None:
    leaf = random(2, *shape, seed=5).requires_grad_()

    def plan(x: torch.Tensor) -> torch.Tensor:
        return sinkhorn(x, 0.7, tol=1e-13)

    assert torch.autograd.gradcheck(plan, leaf)
    assert torch.autograd.gradgradcheck(plan, leaf)


def test_derivatives_with_masks_lengths_and_marginals() -> None:
    leaf = random(2, 3, 4, seed=6).requires_grad_()
    a, b = random(2, 3, seed=7).requires_grad_(), random(2, 4, seed=8).requires_grad_()
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[0, 2] = False

    def plan(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        marginals = {"row_marginals": a.softmax(1), "column_marginals": b.softmax(1)}
        return sinkhorn(x, mask=mask, tol=1e-13, **marginals)

    found = plan(leaf, a, b)
    torch.testing.assert_close(found.sum(2), a.softmax(1), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.sum(1), b.softmax(1), rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(plan, (leaf, a, b))
    lengths = torch.tensor([[3, 4], [2, 2]])
    assert torch.autograd.gradcheck(lambda x: sinkhorn(x, lengths=lengths, tol=1e-13), leaf)


def test_padding_is_zero_and_changes_nothing() -> None:
    scores = random(3, 4, 5, seed=9)
    lengths = torch.tensor([[4, 5], [2, 5], [4, 3]])
    padded = scores.clone()
    for row, (n, m) in enumerate(lengths.tolist()):
        padded[row, n:], padded[row, :, m:] = math.nan, math.inf
    padded.requires_grad_()
    plan = sinkhorn(padded, lengths=lengths)
    (gradient,) = torch.autograd.grad(plan.square().sum(), padded)
    for row, (n, m) in enumerate(lengths.tolist()):
        alone = sinkhorn(scores[row, :n, :m])
        torch.testing.assert_close(plan[row, :n, :m], alone, rtol=0, atol=1e-14)
        assert float(plan[row].detach().sum()) == pytest.approx(float(alone.sum()), abs=1e-12)
        assert not gradient[row, n:].any() and not gradient[row, :, m:].any()


def test_batch_axes_and_float32() -> None:
    scores = random(2, 3, 4, 4, seed=10)
    plan = sinkhorn(scores.float())
    assert plan.dtype == torch.float32 and plan.shape == scores.shape
    torch.testing.assert_close(plan[1, 2].double(), sinkhorn(scores[1, 2]), rtol=0, atol=1e-6)
    assert sinkhorn(torch.zeros(0, 3, 3)).shape == (0, 3, 3)


def test_solution_reports_error_and_iterations() -> None:
    scores = torch.stack([torch.zeros(4, 4).double(), 4 * random(4, 4, seed=11)])
    early = sinkhorn_solve(scores, 0.1, max_iter=3)
    assert early.converged.tolist() == [True, False]
    assert early.iterations.tolist() == [3, 3]
    off = (early.plan.sum(2) - 1).abs().amax(1)
    torch.testing.assert_close(early.error, off, rtol=1e-9, atol=1e-12)
    late = sinkhorn_solve(scores, 1.0, tol=1e-10)
    assert bool(late.converged.all()) and bool((late.error <= 1e-10).all())
    assert late.iterations[0] < late.iterations[1]


def test_warns_with_the_remedy_when_it_stopped_early() -> None:
    scores = 4 * random(2, 4, 4, seed=11)
    with pytest.warns(UserWarning) as caught:
        sinkhorn(scores, 0.1, max_iter=3)
    (warning,) = caught
    assert warning.filename == __file__
    text = str(warning.message)
    assert text.startswith("sinkhorn: 2 of 2 plans did not converge in 3 iterations (the largest")
    assert text.endswith("raise `max_iter`, `tol` or `gamma`, or rescale the scores.")


def test_errors() -> None:
    zeros, half = torch.zeros(2, 2), torch.full((2,), 0.5)
    for arguments, message in (
        ({"gamma": 0.0}, "sinkhorn: `gamma` must be a number above 0; got 0.0."),
        ({"tol": 0.0}, "sinkhorn: `tol` must be above 0 and at most 1; got 0.0."),
        ({"max_iter": 0}, "sinkhorn: `max_iter` must be at least 1; got 0."),
        (
            {"row_marginals": half},
            "sinkhorn: expected both marginals or none, but got only one of them.",
        ),
        (
            {"row_marginals": half, "column_marginals": 2 * half},
            "sinkhorn: expected marginals of equal sums, but in instance 0 of the batch the rows "
            "sum to 1 and the columns to 2.",
        ),
        (
            {"row_marginals": half, "column_marginals": torch.tensor([1.0, 0.0])},
            "sinkhorn: expected `column_marginals` to be positive and finite.",
        ),
        (
            {"row_marginals": torch.ones(3), "column_marginals": half},
            "sinkhorn: expected `row_marginals` to be a floating tensor of shape (2,) or (2,), but "
            "got (3,).",
        ),
    ):
        with pytest.raises(fy.FenchelError) as error:
            sinkhorn(zeros, **arguments)
        assert str(error.value) == message
    blocked = torch.tensor([[0.0, -math.inf], [0.0, -math.inf]])
    with pytest.raises(fy.FenchelError, match="one-to-one assignment, but instance 0"):
        sinkhorn(blocked)
    with pytest.raises(fy.FenchelError, match="a finite score in every row and column"):
        sinkhorn(blocked, row_marginals=half, column_marginals=half)
