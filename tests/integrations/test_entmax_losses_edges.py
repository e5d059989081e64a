"""The losses of the drop-in where they differ from the ``entmax`` package, and bad input."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import fenchel as fy
from fenchel.integrations import entmax as ours
from tests.integrations.loss_cases import (
    FUNCTIONS,
    MODULES,
    SORTED,
    WITH_ALPHA,
    classes,
    every_function,
    every_module,
    every_reduction,
)
from tests.maps.cases import INF, randn

package = pytest.importorskip("entmax")

F64 = torch.float64


# --------------------------------------------------------------------------- different on purpose


@pytest.mark.parametrize("name", WITH_ALPHA)
def test_one_alpha_a_row_with_its_gradient(name, rng):
    x, target = randn(6, 5, rng=rng), classes(6, n=5, rng=rng)
    alpha = torch.linspace(1.2, 3, 6, dtype=F64).unsqueeze(1).requires_grad_()
    losses = getattr(ours, name)(x, target, alpha)
    assert losses.shape == (6,)
    assert getattr(package, name)(x, target, alpha).shape == (6, 6)
    for i, number in enumerate(alpha.flatten().tolist()):
        alone = getattr(package, name)(x[i : i + 1], target[i : i + 1], number)
        torch.testing.assert_close(losses[i : i + 1].detach(), alone, rtol=0, atol=1e-8)
    torch.autograd.gradcheck(lambda a: getattr(ours, name)(x, target, a), alpha)
    shared = torch.tensor(1.4, requires_grad=True)  # float32 with float64 scores
    getattr(ours, name)(x, target, shared).sum().backward()
    assert shared.grad.isfinite() and shared.grad != 0


@pytest.mark.parametrize("name", ["EntmaxBisectLoss", "NormmaxBisectLoss"])
def test_a_module_takes_a_parameter(name, rng):
    module = getattr(ours, name)(torch.nn.Parameter(torch.tensor(1.75, dtype=F64)))
    assert len(list(module.parameters())) == 1
    module(randn(4, 5, rng=rng), classes(4, n=5, rng=rng)).backward()
    assert next(module.parameters()).grad.isfinite()


@every_function
def test_second_derivatives(name, rng):
    x, target = randn(3, 4, rng=rng, scale=0.2).requires_grad_(), torch.tensor([0, 1, 2])
    torch.autograd.gradgradcheck(lambda x: getattr(ours, name)(x, target), x)


def test_alpha_1_is_cross_entropy_and_the_perceptron_loss(rng):
    x, target = randn(6, 5, rng=rng), classes(6, n=5, rng=rng)
    expected = F.cross_entropy(x, target, reduction="none")
    torch.testing.assert_close(ours.entmax_bisect_loss(x, target, 1), expected)
    expected = x.amax(-1) - x.gather(-1, target[:, None]).squeeze(-1)
    torch.testing.assert_close(ours.normmax_bisect_loss(x, target, 1), expected)


@every_function
def test_a_won_margin_gives_exactly_zero(name, rng):
    x = randn(200, 6, rng=rng, dtype=torch.float32, scale=30)
    losses = getattr(ours, name)(x, x.argmax(-1))
    assert (losses >= 0).all() and (losses == 0).any()


@every_function
def test_masked_scores(name):
    x = torch.tensor([[0.5, 0.0, -INF], [0.5, 0.0, -INF]], dtype=F64, requires_grad=True)
    function = getattr(ours, name)
    right, wrong = function(x, torch.tensor([1, 2]))
    assert torch.equal(right, function(x[:1, :2], torch.tensor([1]))[0])
    assert wrong == INF
    (right + wrong).backward()
    assert x.grad.isfinite().all() and x.grad[0, 2] == 0


@every_module
@every_reduction
@pytest.mark.parametrize("ignore_index", [-100, -1, 9])
def test_an_ignored_row_may_have_any_class_and_any_scores(name, reduction, ignore_index, rng):
    x = randn(4, 5, rng=rng)
    x[2] = math.nan
    x = x.requires_grad_()
    target = torch.tensor([0, 4, ignore_index, 1])
    module = getattr(ours, name)(ignore_index=ignore_index, reduction=reduction)
    value = module(x, target)
    kept = torch.tensor([0, 1, 3])
    expected = getattr(package, name)(reduction=reduction)(x.detach()[kept], target[kept])
    got = value.detach()
    if reduction == "none":
        assert got[2] == 0
        got = got[kept]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)
    value.sum().backward()
    assert (x.grad[2] == 0).all() and x.grad.isfinite().all()


@every_module
def test_the_mean_does_not_overflow_in_half_precision(name):
    x = torch.tensor([[0.0, 1000.0]], dtype=torch.float16).expand(200, 2)
    assert getattr(ours, name)()(x, torch.zeros(200, dtype=torch.int64)) == 1000


@every_module
def test_any_leading_dimensions(name, rng):
    x, target = randn(2, 3, 5, rng=rng), classes(2, 3, n=5, rng=rng)
    flat = getattr(package, name)(ignore_index=1)(x.reshape(6, 5), target.reshape(6))
    got = getattr(ours, name)(ignore_index=1)(x, target)
    torch.testing.assert_close(got, flat, rtol=0, atol=1e-9)
    assert getattr(ours, MODULES[name])(x[0, 0], target[0, 0]).shape == ()


# -------------------------------------------------------------------------------------- bad input

X = torch.zeros(2, 3)
T = torch.zeros(2, dtype=torch.int64)
ERRORS = [
    (
        lambda: ours.sparsemax_loss(X, T, k=0),
        "sparsemax_loss: expected `k` to be a positive int or None, but got 0.",
    ),
    (
        lambda: ours.entmax15_loss(X, T, k=2.5),
        "entmax15_loss: expected `k` to be a positive int or None, but got 2.5.",
    ),
    (
        lambda: ours.sparsemax_bisect_loss(X, T, n_iter=-1),
        "sparsemax_bisect_loss: expected `n_iter` to be a positive int or None, but got -1.",
    ),
    (
        lambda: ours.entmax_bisect_loss(X, T, n_iter=True),
        "entmax_bisect_loss: expected `n_iter` to be a positive int or None, but got True.",
    ),
    (
        lambda: ours.normmax_bisect_loss(X, T, n_iter="3"),
        "normmax_bisect_loss: expected `n_iter` to be a positive int or None, but got '3'.",
    ),
    (
        lambda: ours.entmax_bisect_loss(X, T, 0.0),
        "entmax_bisect_loss: `alpha` must be above 0 (1 is cross-entropy, 2 is the sparsemax "
        "loss); got 0.0.",
    ),
    (
        lambda: ours.normmax_bisect_loss(X, T, 0.5),
        "normmax_bisect_loss: `alpha` must be at least 1 (1 is the perceptron loss); got 0.5.",
    ),
    (
        lambda: ours.normmax_bisect_loss(X, T, torch.full((2,), 1.5)),
        "normmax_bisect_loss: expected `alpha` broadcastable to (2, 1) (one value per row: the "
        "shape of `scores` with size 1 along dim 1), but got (2,).",
    ),
    (
        lambda: ours.sparsemax_loss(X.tolist(), T),
        "sparsemax_loss: expected `scores` to be a torch.Tensor, but got list.",
    ),
    (
        lambda: ours.SparsemaxLoss()(X, [0, 1]),
        "sparsemax_loss: expected `target` to be a torch.Tensor, but got list.",
    ),
    (
        lambda: ours.Entmax15Loss()(X, T.float()),
        "entmax15_loss: expected `target` of class indices (int64), but got torch.float32; for "
        "probabilities use fenchel.fenchel_young_loss.",
    ),
    (
        lambda: ours.entmax15_loss(X, T[:1]),
        "entmax15_loss: expected `target` of class indices of shape (2,) (`scores` of shape (2, 3) "
        "without dim 1), but got (1,).",
    ),
    (
        lambda: ours.sparsemax_loss(X, T + 3),
        "sparsemax_loss: expected class indices in [0, 2] in `target`, but got 3.",
    ),
    (
        lambda: ours.sparsemax_loss(X, T - 100),
        "sparsemax_loss: expected class indices in [0, 2] in `target`, but got -100.",
    ),
    (
        lambda: ours.SparsemaxLoss(ignore_index=1)(X, T - 100),
        "sparsemax_loss: expected class indices in [0, 2] in `target`, but got -100.",
    ),
    (
        lambda: ours.SparsemaxLoss(reduction="mean"),
        "SparsemaxLoss: expected `reduction` to be 'elementwise_mean', 'sum' or 'none', but got "
        "'mean'.",
    ),
    (
        lambda: ours.EntmaxBisectLoss(ignore_index=1.5),
        "EntmaxBisectLoss: expected `ignore_index` to be an int, but got 1.5.",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(fy.FenchelError) as error:
        call()
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, "k") for name in SORTED] + [(name, "n_iter") for name in FUNCTIONS[2:]],
)
def test_counts_have_no_effect(name, key, rng):
    x, target, function = randn(5, 8, rng=rng), classes(5, n=8, rng=rng), getattr(ours, name)
    for value in (1, 3, None):
        assert torch.equal(function(x, target, **{key: value}), function(x, target))
