"""`fy.linear_entmax_loss`: sparse gradients, memory, half precision, batches, threads."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from fenchel.losses import _output_layer as layer
from tests.losses.linear_cases import ALPHAS, composed, gradients, make
from tests.watch import LargestTensor

alphas = pytest.mark.parametrize("alpha", ALPHAS)


# -- sparse gradients --------------------------------------------------------


@alphas
def test_sparse_grad_is_the_dense_one(alpha, backend, rng):
    hidden, weight, bias, target = make(13, 50, 5, rng, scale=2.0, ignored=-100)
    inputs = (hidden, weight, bias)
    dense = fy.linear_entmax_loss(hidden, weight, target, alpha, bias=bias)
    sparse = fy.linear_entmax_loss(hidden, weight, target, alpha, bias=bias, sparse_grad=True)
    assert torch.equal(dense, sparse)
    wanted, got = torch.autograd.grad(dense, inputs), torch.autograd.grad(sparse, inputs)
    assert got[1].layout == torch.sparse_coo
    assert got[1].is_coalesced()
    assert got[1].shape == weight.shape
    named = got[1].indices()[0]
    assert (named.diff() > 0).all()
    checked = torch.sparse_coo_tensor(
        got[1].indices(), got[1].values(), weight.shape, check_invariants=True
    )
    got = (got[0], checked.to_dense(), got[2])
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
    if alpha > 1:
        assert len(named) < 50


def test_sparse_grad_names_only_supported_rows(backend):
    hidden = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    weight = torch.tensor([[5.0, 0.0], [0.0, 1.0], [-3.0, 0.0], [4.9, 0.0]], requires_grad=True)
    loss = fy.linear_entmax_loss(hidden, weight, torch.tensor([0, 2]), 2.0, sparse_grad=True)
    (grad,) = torch.autograd.grad(loss, weight)
    assert grad.indices().tolist() == [[0, 2, 3]]
    learned = fy.linear_entmax_loss(hidden * 100, weight, torch.tensor([0, 0]), sparse_grad=True)
    (grad,) = torch.autograd.grad(learned, weight)
    assert learned == 0
    assert grad._nnz() == 0


def test_sparse_adam_steps(backend, rng):
    hidden, weight, bias, target = make(20, 60, 5, rng, dtype=torch.float32, scale=3.0)
    loss = fy.linear_entmax_loss(hidden, weight, target, bias=bias, sparse_grad=True)
    before = weight.detach().clone()
    optimizer = torch.optim.SparseAdam([weight], lr=0.1)
    loss.backward()
    touched = weight.grad.coalesce().indices()[0]  # torch forgets that it is coalesced
    optimizer.step()
    moved = (weight.detach() != before).any(1).nonzero()[:, 0]
    assert set(moved.tolist()) <= set(touched.tolist())
    assert len(moved) > 0
    after = fy.linear_entmax_loss(hidden, weight, target, bias=bias)
    assert after < loss


# -- memory ------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("trained", [False, True])
def test_nothing_of_size_rows_times_classes(smoothing, trained, rng):
    rows, classes, d = 1024, 1500, 4
    hidden, weight, bias, target = make(rows, classes, d, rng, dtype=torch.float32)
    hidden.data *= 20.0 if trained else 0.01  # few nonzeros, or nearly all
    with LargestTensor() as watched:
        composed(hidden, weight, target, bias=bias).backward()
    assert watched.entries >= rows * classes  # the watch works
    with LargestTensor() as watched:
        loss = fy.linear_entmax_loss(hidden, weight, target, bias=bias, label_smoothing=smoothing)
        loss.backward()
    assert watched.entries <= layer.CHUNK * classes  # the buffer


def test_few_rows_save_memory_too():
    assert [layer.chunk_size(n) for n in (1, 100, 300, 1000, 5000)] == [128, 128, 150, 500, 512]


def test_a_trained_model_keeps_only_nonzeros(backend, rng):
    hidden, weight, _, target = make(300, 2000, 4, rng, scale=30.0)
    a = torch.tensor([1.5], dtype=torch.float64)
    with torch.no_grad():
        *_, lists, dense = layer.chunked_forward(hidden, weight, None, target, a, True, False, True)
    assert not dense.any()
    assert lists.values.numel() < 300 * 20


# -- dtypes ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_half(dtype, share, alpha, backend, monkeypatch, rng):
    monkeypatch.setattr(layer, "DENSE_SHARE", share)
    hidden, weight, bias, target = make(150, 40, 16, rng, dtype=dtype, scale=0.5, ignored=-100)
    inputs = (hidden, weight, bias)
    loss = fy.linear_entmax_loss(hidden, weight, target, alpha, bias=bias)
    assert loss.dtype == dtype
    wide = [x.detach().double().requires_grad_() for x in inputs]
    truth = composed(wide[0], wide[1], target, alpha, bias=wide[2])
    tolerance = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(loss.double(), truth, atol=0, rtol=tolerance)
    wanted = torch.autograd.grad(truth, wide)
    for mine, theirs in zip(torch.autograd.grad(loss, inputs), wanted, strict=True):
        assert mine.dtype == dtype
        # Logits of size 4 are rounded to half, as F.linear does, and p moves by that rounding.
        allowed = 4 * torch.finfo(dtype).eps * theirs.abs().max().item()
        torch.testing.assert_close(mine.double(), theirs, atol=allowed, rtol=tolerance)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("half_hidden", [False, True])
def test_autocast(smoothing, half_hidden, backend, rng):
    hidden, weight, bias, target = make(20, 40, 16, rng, dtype=torch.float32, scale=0.5)
    given = hidden.bfloat16() if half_hidden else hidden
    inputs = (hidden, weight, bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fy.linear_entmax_loss(given, weight, target, bias=bias, label_smoothing=smoothing)
        wanted = composed(given, weight, target, bias=bias, label_smoothing=smoothing)
    assert got.dtype == wanted.dtype == torch.float32
    torch.testing.assert_close(got, wanted, atol=1e-2, rtol=1e-2)
    for mine, theirs in zip(gradients(got, inputs), gradients(wanted, inputs), strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, atol=2e-2 * theirs.abs().max().item(), rtol=1e-2)


def test_autocast_leaves_float64_alone(backend, rng):
    hidden, weight, _, target = make(20, 40, 16, rng)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fy.linear_entmax_loss(hidden, weight, target)
    assert torch.equal(got, fy.linear_entmax_loss(hidden, weight, target))
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(fy.FenchelError, match="of one dtype on one device"),
    ):
        fy.linear_entmax_loss(hidden, weight.float(), target)


# -- batches and threads -----------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("lead", [(0,), (3, 0), (0, 2)], ids=str)
def test_empty_batch(reduction, smoothing, lead, backend, rng):
    hidden, weight, bias, target = make(lead, 9, 4, rng)
    kwargs = {"reduction": reduction, "label_smoothing": smoothing}
    loss = fy.linear_entmax_loss(hidden, weight, target, bias=bias, **kwargs)
    wanted = F.cross_entropy(torch.zeros(0, 9), torch.zeros(0).long(), reduction=reduction)
    if reduction == "none":
        assert loss.shape == lead
    else:
        torch.testing.assert_close(loss, wanted.double(), equal_nan=True)
    if reduction == "sum":
        got = torch.autograd.grad(loss, (hidden, weight, bias))
        assert all((g == 0).all() for g in got)
    sparse = fy.linear_entmax_loss(hidden, weight, target, sparse_grad=True, reduction="sum")
    assert torch.autograd.grad(sparse, weight)[0]._nnz() == 0
    with torch.no_grad():
        assert fy.linear_entmax_loss(hidden, weight, target, reduction="sum") == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_all_ignored(smoothing, backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)
    target[:] = -100
    with pytest.warns(UserWarning, match=r"linear_entmax_loss: every target is `ignore_index`"):
        loss = fy.linear_entmax_loss(hidden, weight, target, label_smoothing=smoothing)
    assert loss.isnan()
    total = fy.linear_entmax_loss(
        hidden, weight, target, reduction="sum", label_smoothing=smoothing
    )
    assert total == 0
    for grad in torch.autograd.grad(total, (hidden, weight)):
        assert (grad == 0).all()


@alphas
def test_a_row_does_not_depend_on_its_batch(alpha, backend, rng):
    """Up to the order of the product's sums, which is torch's."""
    hidden, weight, bias, target = make(40, 70, 5, rng)
    kwargs = {"bias": bias, "reduction": "none"}
    together = fy.linear_entmax_loss(hidden, weight, target, alpha, **kwargs)
    (grad,) = torch.autograd.grad(together.sum(), hidden)
    poisoned = hidden.detach().clone()
    poisoned[1::2] = math.nan
    poisoned.requires_grad_()
    apart = fy.linear_entmax_loss(poisoned, weight, target, alpha, **kwargs)
    (other,) = torch.autograd.grad(apart.sum(), poisoned)
    assert torch.equal(together[::2], apart[::2])
    assert apart[1::2].isnan().all()
    torch.testing.assert_close(grad[::2], other[::2], atol=1e-13, rtol=1e-13)
    for row in (0, 7, 39):
        one = hidden.detach()[row : row + 1].requires_grad_()
        alone = fy.linear_entmax_loss(one, weight, target[row : row + 1], alpha, **kwargs)
        torch.testing.assert_close(alone[0], together[row], atol=1e-12, rtol=1e-12)
        (own,) = torch.autograd.grad(alone.sum(), one)
        torch.testing.assert_close(own[0], grad[row], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_threads_change_no_digit(alpha, share, threads, monkeypatch, rng):
    monkeypatch.setattr(layer, "DENSE_SHARE", share)
    hidden, weight, bias, target = make(300, 900, 32, rng, dtype=torch.float32)
    hidden.data.copy_((hidden * 4).round() / 4)  # torch's product is exact: only ours is tested
    weight.data.copy_((weight * 4).round() / 4)
    bias.data.copy_((bias * 4).round() / 4)
    results = []
    for count in (1, 2, 3):
        threads(count)
        loss = fy.linear_entmax_loss(
            hidden, weight, target, alpha, bias=bias, reduction="none", sparse_grad=share == 1
        )
        grads = gradients(loss, (hidden, weight, bias))
        results.append([loss, *(g.to_dense() for g in grads)])
    if share == 0:  # torch's own dense products
        results = [r[:1] for r in results]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("sparse_grad", [False, True])
def test_it_learns(sparse_grad, backend, rng):
    """A linear teacher of 20 classes; every margin is met in the end."""
    teacher = torch.randn(20, 8, generator=rng)
    hidden = torch.randn(200, 8, generator=rng)
    target = (hidden @ teacher.t()).argmax(1)
    weight = torch.zeros(20, 8, requires_grad=True)
    kind = torch.optim.SparseAdam if sparse_grad else torch.optim.Adam
    optimizer = kind([weight], lr=0.5)
    losses = []
    for _ in range(150):
        loss = fy.linear_entmax_loss(hidden, weight, target, sparse_grad=sparse_grad)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.02 * losses[0]
    assert ((hidden @ weight.t()).argmax(1) == target).float().mean() > 0.98
