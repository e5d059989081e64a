"""`F.cross_entropy` becomes `fy.entmax_loss` with no other change: layouts, weights, reductions."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.regularizers.cases import distributions, randn

pytestmark = pytest.mark.usefixtures("backend")

SHAPES = [(7,), (5, 7), (4, 7, 3), (2, 7, 3, 2), (1, 7), (6, 200)]
REDUCTIONS = ["mean", "sum", "none"]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
reductions = pytest.mark.parametrize("reduction", REDUCTIONS)


def make(shape, rng, ignored: int | None = None):
    """Scores, class indices and probabilities of one shape, class axis where torch has it."""
    axis = 1 if len(shape) > 1 else 0
    scores = randn(*shape, rng=rng, scale=2.0).requires_grad_()
    rest = shape[:axis] + shape[axis + 1 :]
    index = torch.randint(0, shape[axis], rest, generator=rng)
    if ignored is not None and index.dim():
        index.view(-1)[1::3] = ignored
    soft = distributions(math.prod(rest), shape[axis], rng).reshape(*rest, shape[axis])
    return scores, index, soft.movedim(-1, axis)


def entropy(q: torch.Tensor, axis: int) -> torch.Tensor:
    return -torch.xlogy(q, q).sum(axis)


def assert_same_with_gradient(ours, theirs, scores, tolerance=1e-13):
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance, equal_nan=True)
    gradients = [torch.autograd.grad(loss.sum(), scores)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=tolerance, rtol=tolerance, equal_nan=True)


@shapes
@reductions
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, -100, 3, -1])
def test_class_indices_at_alpha_one(shape, reduction, weighted, ignored, rng):
    scores, index, _ = make(shape, rng, ignored)
    kwargs = {"reduction": reduction, "ignore_index": -100 if ignored is None else ignored}
    if weighted:
        kwargs["weight"] = torch.rand(shape[min(1, len(shape) - 1)], generator=rng).double()
    ours = fy.entmax_loss(scores, index, alpha=1.0, **kwargs)
    assert_same_with_gradient(ours, F.cross_entropy(scores, index, **kwargs), scores)


@shapes
@reductions
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("kind", ["index", "soft"])
def test_soft_targets_at_alpha_one_differ_by_their_entropy(
    shape, reduction, weighted, smoothing, kind, rng
):
    scores, index, soft = make(shape, rng)
    axis = min(1, len(shape) - 1)
    kwargs = {"label_smoothing": smoothing, "reduction": reduction}
    weight = torch.rand(shape[axis], generator=rng).double() + 0.1
    if weighted:
        kwargs["weight"] = weight
    target = index if kind == "index" else soft
    ours = fy.entmax_loss(scores, target, alpha=1.0, **kwargs)
    theirs = F.cross_entropy(scores, target, **kwargs)
    gradients = [torch.autograd.grad(loss.sum(), scores)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=1e-13, rtol=1e-13)
    if not weighted:
        q = soft if kind == "soft" else F.one_hot(index, shape[axis]).double().movedim(-1, axis)
        own = entropy((1 - smoothing) * q + smoothing / shape[axis], axis)
        own = {"mean": own.mean(), "sum": own.sum(), "none": own}[reduction]
        torch.testing.assert_close(ours, theirs - own, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("smoothing", [0.1, 0.7])
def test_smoothed_minimum_is_exactly_zero_at_the_target(alpha, smoothing):
    n, target = 5, torch.tensor([2])
    q = (1 - smoothing) * F.one_hot(target, n).double() + smoothing / n
    scores = fy.Tsallis(alpha).gradient_rows(q).requires_grad_()  # the scores whose map is q
    loss = fy.entmax_loss(scores, target, alpha, label_smoothing=smoothing)
    assert 0 <= loss < 1e-15
    assert torch.autograd.grad(loss, scores)[0].abs().max() < 1e-12


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_smoothing_skips_masked_classes(alpha, rng):
    scores = randn(4, 5, rng=rng)
    target = torch.tensor([0, 1, 2, 0])
    longer = F.pad(scores, (0, 3), value=-math.inf).requires_grad_()
    loss = fy.entmax_loss(longer, target, alpha, label_smoothing=0.3)
    wanted = fy.entmax_loss(scores, target, alpha, label_smoothing=0.3)
    torch.testing.assert_close(loss, wanted, atol=1e-13, rtol=1e-13)
    (gradient,) = torch.autograd.grad(loss, longer)
    assert (gradient[:, 5:] == 0).all()


LOSSES = {
    "entmax": (lambda *a, **k: fy.entmax_loss(*a, alpha=1.7, **k), fy.Tsallis(1.7)),
    "entmax15": (fy.entmax15_loss, fy.Tsallis(1.5)),
    "sparsemax": (fy.sparsemax_loss, fy.Gini()),
    "norm": (lambda *a, **k: fy.fenchel_young_loss(*a, omega=fy.Norm(1.5), **k), fy.Norm(1.5)),
    "renyi": (lambda *a, **k: fy.fenchel_young_loss(*a, omega=fy.Renyi(0.5), **k), fy.Renyi(0.5)),
    "zero": (lambda *a, **k: fy.fenchel_young_loss(*a, omega="zero", **k), fy.Zero()),
    "scaled": (
        lambda *a, **k: fy.fenchel_young_loss(*a, omega=0.5 * fy.Gini(), **k),
        0.5 * fy.Gini(),
    ),
}
losses = pytest.mark.parametrize("name", LOSSES)


@losses
@shapes
@pytest.mark.parametrize("weighted", [False, True])
def test_every_argument_on_every_layout(name, shape, weighted, rng):
    """Against the loss of one row at a time, reduced by hand."""
    function, omega = LOSSES[name]
    scores, index, soft = make(shape, rng, ignored=5)
    axis = min(1, len(shape) - 1)
    n = shape[axis]
    weight = torch.rand(n, generator=rng).double() + 0.1 if weighted else None
    rows = scores.detach().movedim(axis, -1).reshape(-1, n)
    for smoothing, kind in itertools.product((0.0, 0.2), ("index", "soft")):
        if kind == "index":
            flat = F.one_hot(index, n).double().reshape(-1, n)
            kept = (index != 5).reshape(-1).double()
            target = index
        else:
            flat = soft.movedim(axis, -1).reshape(-1, n)
            kept = torch.ones(len(flat)).double()
            target = soft
        q = (1 - smoothing) * flat + smoothing / n
        scale = torch.ones(len(flat)).double() if weight is None else q @ weight
        tilted = q if weight is None else q * weight / scale[:, None]
        each = kept * scale * omega.loss(rows, tilted)
        counts = kept if weight is None or kind == "soft" else kept * (flat @ weight)
        wanted = {"none": each, "sum": each.sum(), "mean": each.sum() / counts.sum()}
        for reduction in REDUCTIONS:
            got = function(
                scores,
                target,
                weight=weight,
                ignore_index=5,
                label_smoothing=smoothing,
                reduction=reduction,
            )
            expected = wanted[reduction].reshape(got.shape)
            torch.testing.assert_close(got.detach(), expected, atol=1e-12, rtol=1e-12)


@losses
def test_any_class_axis(name, rng):
    function, _ = LOSSES[name]
    scores = randn(3, 4, 5, rng=rng)
    for dim in (0, 1, 2, -1, -2):
        moved = scores.movedim(dim, 1)
        index = torch.randint(0, moved.shape[1], (moved.shape[0], moved.shape[2]), generator=rng)
        got = function(scores, index, dim=dim, reduction="none")
        assert torch.equal(got, function(moved, index, reduction="none"))


@losses
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_ignored_rows_do_nothing(name, smoothing, rng):
    function, _ = LOSSES[name]
    scores = randn(6, 7, rng=rng)
    index = torch.tensor([0, -100, 2, -100, 4, 1])
    poisoned = scores.clone()
    poisoned[1] = math.nan
    poisoned[3] = -math.inf
    poisoned.requires_grad_()
    kept = index != -100
    loss = function(poisoned, index, label_smoothing=smoothing)
    wanted = function(scores[kept], index[kept], label_smoothing=smoothing)
    torch.testing.assert_close(loss, wanted, atol=1e-14, rtol=1e-14)
    (gradient,) = torch.autograd.grad(loss, poisoned)
    assert (gradient[~kept] == 0).all()
    rows = function(poisoned, index, label_smoothing=smoothing, reduction="none")
    assert (rows[~kept] == 0).all()


@losses
def test_all_ignored(name):
    function, _ = LOSSES[name]
    scores, index = torch.zeros(3, 4, requires_grad=True), torch.full((3,), -100)
    with pytest.warns(UserWarning, match=r"every target is `ignore_index`, so the mean is NaN"):
        assert function(scores, index).isnan()
    assert function(scores, index, reduction="sum") == 0
    assert (function(scores, index, reduction="none") == 0).all()


def test_empty_batch():
    scores, index = torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.long)
    assert fy.entmax_loss(scores, index).isnan()  # as F.cross_entropy
    assert fy.entmax_loss(scores, index, reduction="sum") == 0
    assert fy.entmax_loss(scores, index, reduction="none").shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_half_precision_reduces_in_float32(dtype, alpha, rng):
    scores = randn(300, 40, rng=rng, dtype=dtype).requires_grad_()
    index = torch.randint(0, 40, (300,), generator=rng)
    loss = fy.entmax_loss(scores, index, alpha)
    assert loss.dtype == dtype
    assert loss == fy.entmax_loss(scores.float(), index, alpha).to(dtype)
    (gradient,) = torch.autograd.grad(loss, scores)
    assert gradient.dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same = F.cross_entropy(scores, index).dtype
        assert fy.entmax_loss(scores, index, alpha).dtype == same


def test_large_vocabulary_with_padding(rng):
    """The shape of a seq2seq batch, float32, against float64."""
    scores = randn(12, 5000, rng=rng, dtype=torch.float32, scale=2.0).requires_grad_()
    index = torch.randint(0, 5000, (12,), generator=rng)
    index[::4] = 0
    for alpha in (1.2, 1.5, 2.0):
        loss = fy.entmax_loss(scores, index, alpha, ignore_index=0)
        wide = scores.detach().double().requires_grad_()
        wanted = fy.entmax_loss(wide, index, alpha, ignore_index=0)
        assert (loss.double() - wanted).abs().item() < 1e-5
        (gradient,) = torch.autograd.grad(loss, scores)
        torch.testing.assert_close(
            gradient.double(), torch.autograd.grad(wanted, wide)[0], atol=1e-6, rtol=0
        )
        assert (gradient[::4] == 0).all()
