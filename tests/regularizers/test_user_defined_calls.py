"""Regularizers that users write: how they are called, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import fenchel as fy
from tests.regularizers.user_defined_cases import (
    F64,
    INF,
    chain,
    check_derivatives,
    from_function,
    gini,
    randn,
    smooth_rows,
    tsallis15,
)

# ---------------------------------------------------------------------- how it is called


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_lower_precision(dtype, rng):
    omega = from_function(chain)
    scores = randn(4, 6, rng=rng).to(dtype).requires_grad_()
    p = omega.predict(scores)
    assert p.dtype == dtype == omega.loss(scores, torch.tensor([0, 1, 2, 3])).dtype
    exact = omega.predict(scores.double())
    torch.testing.assert_close(p.double(), exact, rtol=0, atol=torch.finfo(dtype).eps)
    (grad,) = torch.autograd.grad(p[0, 0], scores)
    assert grad.dtype == dtype and grad.isfinite().all()
    assert omega.solve(scores).p.dtype == dtype


def test_dim_and_solve(rng):
    omega = from_function(tsallis15, gamma=2.0)
    scores = randn(3, 5, 4, rng=rng)
    moved = scores.movedim(1, -1)
    assert torch.equal(omega.predict(scores, dim=1).movedim(1, -1), omega.predict(moved))
    solution = omega.solve(scores, dim=1)
    assert torch.equal(solution.p, omega.predict(scores, dim=1))
    assert solution.gap.shape == solution.iterations.shape == solution.converged.shape == (3, 4)
    assert solution.converged.all() and solution.gap.max() < 1e-12
    early = from_function(tsallis15, gamma=2.0, max_iter=1).solve(scores, dim=1)
    missing = omega.conjugate(scores, dim=1) - ((scores * early.p).sum(1) - omega(early.p, dim=1))
    assert (missing <= early.gap + 1e-14).all() and (missing > 0).any()


def test_warns_when_it_stops_early(rng):
    scores = randn(3, 5, rng=rng)
    omega = from_function(tsallis15, max_iter=1, name="mine")
    remedy = r"mine.* 3 of 3 rows .* 1 iterations .*raise `max_iter` or `tol`, or rescale"
    with pytest.warns(UserWarning, match=remedy) as record:
        omega.predict(scores)
    assert record[0].filename == __file__
    with pytest.warns(UserWarning, match=remedy):
        omega.loss(scores, torch.tensor([0, 1, 2]))
    # Nothing to warn of: a gap of 10 is met at once, and these rows were lost before.
    from_function(tsallis15, max_iter=1, tol=10.0).predict(scores)
    scores[0], scores[1], scores[2] = math.nan, -INF, INF
    omega.predict(scores)


def test_losses_take_every_argument(rng):
    omega, ours = from_function(tsallis15), fy.Tsallis(1.5)
    scores = randn(8, 5, rng=rng)
    target = torch.tensor([0, 1, -1, 2, 3, 4, -1, 0])
    arguments = {
        "weight": torch.rand(5, generator=rng, dtype=F64),
        "label_smoothing": 0.1,
        "cost": 0.5,
        "ignore_index": -1,
    }
    for reduction in ("mean", "sum", "none"):
        got, expected = (
            fy.fenchel_young_loss(scores, target, o, reduction=reduction, **arguments)
            for o in (omega, ours)
        )
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def test_functions_of_one_row(rng):
    scores = randn(5, 5, rng=rng).requires_grad_()
    one = from_function(lambda p: 0.5 * p @ p)
    p = one.predict(scores)
    torch.testing.assert_close(p, fy.sparsemax(scores), rtol=0, atol=1e-12)
    check_derivatives(one.predict, smooth_rows(one, rng))
    torch.testing.assert_close(one(p), gini(p))


def test_inference_mode_and_compile(rng):
    omega, scores = from_function(chain), randn(2, 5, rng=rng)
    expected = omega.predict(scores)
    with torch.inference_mode():
        assert torch.equal(omega.predict(scores * 1), expected)
        omega.loss(scores * 1, torch.tensor([0, 1]))
    compiled = torch.compile(lambda x: omega.predict(x * 1), backend="eager")
    assert torch.equal(compiled(scores), expected)


def test_repr():
    assert repr(from_function(gini)) == "Regularizer.from_function(gini, gamma=1)"
    assert repr(from_function(gini, gamma=0.5, name="mine")) == (
        "Regularizer.from_function(mine, gamma=0.5)"
    )
    assert repr(from_function(torch.nn.Identity())) == (
        "Regularizer.from_function(Identity, gamma=1)"
    )


def test_learns(rng):
    """A linear model with an Ω of our own finds the labels and leaves margins behind."""
    inputs, teacher = randn(60, 4, rng=rng), randn(4, 3, rng=rng)
    labels = (inputs @ teacher).argmax(-1)
    omega = from_function(chain)
    weight = torch.zeros(4, 3, dtype=F64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = fy.fenchel_young_loss(inputs @ weight, labels, omega)
        loss.backward()
        return loss

    before = float(closure().detach())
    optimizer.step(closure)
    assert float(closure().detach()) < 0.05 * before
    assert (omega.predict(inputs @ weight).argmax(-1) == labels).all()
    assert (omega.predict(inputs @ weight) == 0).any()


# ---------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"f": "gini"}, "function of probabilities .* got str"),
        ({"gamma": 0}, "`gamma` must be a finite number above 0; got 0"),
        ({"gamma": INF}, "`gamma` must be a finite number above 0; got inf"),
        ({"gamma": math.nan}, "`gamma` must be at least 0"),
        ({"gamma": "warm"}, "`gamma` to be a number, but got str"),
        ({"tol": 0.0}, "`tol` must be a finite number above 0"),
        ({"tol": -1.0}, "`tol` must be at least 0"),
        ({"max_iter": 0}, "`max_iter` to be an int of at least 1, but got 0"),
        ({"max_iter": 1e3}, "`max_iter` to be an int of at least 1, but got 1000.0"),
        ({"strongly_convex": 1}, "`strongly_convex` to be True or False, but got 1"),
        ({"name": 3}, "`name` to be a string, but got int"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(fy.FenchelError, match=message):
        from_function(**({"f": gini} | arguments))


_LEARNED = torch.ones(3, dtype=F64, requires_grad=True)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda p: 1 / 0, "raised ZeroDivisionError"),
        (lambda p: p @ torch.ones(3), "shape .2, 3., but it raised RuntimeError: .*dtype"),
        (lambda p: p, r"shape \(2,\) .* but got shape \(2, 3\)"),
        (lambda p: 1.0, "but got float"),
        (lambda p: p.float().sum(-1), "but got torch.float32"),
        (lambda p: p.detach().sum(-1), "no `grad_fn`"),
        (lambda p: p.log().sum(-1) * math.nan, r"finite inside the simplex, but got \[nan, nan\]"),
        (lambda p: (_LEARNED * p * p).sum(-1), "requires grad.*scores alone"),
    ],
)
def test_wrong_functions(f, message):
    omega = from_function(f, name="mine")
    for call in (
        lambda x: omega.predict(x),
        lambda x: omega.conjugate(x),
        lambda x: omega.loss(x, torch.tensor([0, 1])),
    ):
        with pytest.raises(fy.FenchelError, match=message) as caught:
            call(torch.zeros(2, 3))
        assert str(caught.value).startswith("Regularizer.from_function(mine, gamma=1)")


def test_learnable_functions_may_be_evaluated():
    omega = from_function(lambda p: (_LEARNED * p * p).sum(-1))
    assert omega(torch.ones(3, dtype=F64) / 3).requires_grad
    with torch.no_grad():
        p = omega.predict(torch.zeros(3, dtype=F64))
    torch.testing.assert_close(p, torch.full((3,), 1 / 3, dtype=F64))
