"""What an output layer predicts: the words with probability, chunk by chunk."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from fenchel.losses import _output_layer as layer
from tests.regularizers.cases import randn

pytestmark = pytest.mark.usefixtures("backend")


def assert_same_rows(got: fy.SparseRows, wanted: fy.SparseRows, tolerance=1e-12):
    assert got.n == wanted.n
    assert torch.equal(got.indices, wanted.indices)
    assert torch.equal(got.sizes, wanted.sizes)
    torch.testing.assert_close(got.values, wanted.values, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(got.threshold, wanted.threshold, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("with_bias", [True, False])
def test_is_sparse_entmax_of_the_layer(alpha, with_bias, rng, monkeypatch):
    monkeypatch.setattr(layer, "chunk_size", lambda rows: 3)  # several chunks
    hidden, weight = randn(2, 4, 6, rng=rng), randn(300, 6, rng=rng)
    bias = randn(300, rng=rng) if with_bias else None
    wanted = fy.sparse_entmax(F.linear(hidden, weight, bias), alpha)
    assert_same_rows(fy.linear_sparse_entmax(hidden, weight, alpha, bias=bias), wanted)


def test_one_alpha_a_row(rng, monkeypatch):
    monkeypatch.setattr(layer, "chunk_size", lambda rows: 3)
    hidden, weight = randn(5, 6, rng=rng), randn(40, 6, rng=rng)
    alpha = torch.linspace(1.2, 3.0, 5).double()[:, None]
    wanted = fy.sparse_entmax(F.linear(hidden, weight), alpha)
    assert_same_rows(fy.linear_sparse_entmax(hidden, weight, alpha), wanted)
    one = torch.tensor(1.7)
    assert_same_rows(
        fy.linear_sparse_entmax(hidden, weight, one), fy.sparse_entmax(hidden @ weight.T, one)
    )


def test_one_state_no_rows_and_masked_classes(rng):
    weight = randn(40, 6, rng=rng)
    single = fy.linear_sparse_entmax(randn(6, rng=rng), weight)
    assert single.sizes.shape == ()
    nothing = fy.linear_sparse_entmax(torch.zeros(0, 6).double(), weight)
    assert nothing.sizes.shape == (0,)
    assert nothing.values.numel() == 0
    bias = torch.zeros(40).double()
    bias[:20] = -math.inf
    rows = fy.linear_sparse_entmax(randn(3, 6, rng=rng), weight, bias=bias)
    assert (rows.indices >= 20).all()


def test_no_gradient(rng):
    weight = randn(40, 6, rng=rng).requires_grad_()
    assert not fy.linear_sparse_entmax(randn(3, 6, rng=rng), weight).values.requires_grad


def test_half(rng):
    hidden, weight = randn(3, 6, rng=rng).bfloat16(), randn(40, 6, rng=rng).bfloat16()
    rows = fy.linear_sparse_entmax(hidden, weight)
    assert rows.values.dtype == torch.bfloat16
    wanted = fy.sparse_entmax(F.linear(hidden, weight).float())
    assert torch.equal(rows.indices, wanted.indices)


@pytest.mark.parametrize(
    ("hidden", "weight", "kwargs", "said"),
    [
        ([1.0], torch.zeros(4, 2), {}, "expected `hidden` to be a floating tensor, but got list"),
        (torch.zeros(3, 2), torch.zeros(4, 3), {}, "but got (3, 2) and (4, 3)"),
        (torch.zeros(3, 2), torch.zeros(0, 2), {}, "expected at least one class"),
        (torch.zeros(3, 2), torch.zeros(4, 2), {"alpha": 0.0}, "`alpha` must be above 0"),
        (
            torch.zeros(3, 2),
            torch.zeros(4, 2),
            {"bias": torch.zeros(3)},
            "expected `bias` of shape",
        ),
        (torch.zeros(3, 2), torch.zeros(4, 2).double(), {}, "of one dtype on one device"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_errors(hidden, weight, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        fy.linear_sparse_entmax(hidden, weight, **kwargs)
    assert said in str(error.value)
    assert str(error.value).startswith("linear_sparse_entmax: ")


def test_topk(rng):
    scores = randn(2, 3, 50, rng=rng)
    scores[0, 0] = -math.inf  # a row without support
    rows = fy.sparse_entmax(scores)
    dense = rows.to_dense()
    for k in (1, 3, 20):
        values, indices = rows.topk(k)
        wanted = dense.topk(k)
        torch.testing.assert_close(values, wanted.values)
        known = values > 0
        assert torch.equal(indices[known], wanted.indices[known])
        assert (indices[~known] == -1).all()
    with pytest.raises(fy.FenchelError, match="expected `k` to be a positive int"):
        rows.topk(0)


def test_topk_has_a_gradient(rng):
    scores = randn(3, 10, rng=rng).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: fy.sparse_entmax(s).topk(2)[0], scores)


# ------------------------------------------------------------------------------- the module


def test_module_is_the_function(rng):
    layer = fy.nn.LinearEntmaxLoss(6, 40, 1.7, ignore_index=3, label_smoothing=0.1).double()
    hidden, target = randn(5, 6, rng=rng), torch.tensor([0, 3, 39, 7, 3])
    wanted = fy.linear_entmax_loss(
        hidden,
        layer.weight,
        target,
        1.7,
        bias=layer.bias,
        ignore_index=3,
        label_smoothing=0.1,
    )
    assert torch.equal(layer(hidden, target), wanted)
    assert_same_rows(
        layer.predict(hidden),
        fy.linear_sparse_entmax(hidden, layer.weight, 1.7, bias=layer.bias),
    )
    assert torch.equal(layer.logits(hidden), F.linear(hidden, layer.weight, layer.bias))


def test_module_loads_a_linear_layer(rng):
    linear = torch.nn.Linear(6, 40)
    layer = fy.nn.LinearEntmaxLoss(6, 40)
    assert layer.state_dict().keys() == linear.state_dict().keys()
    layer.load_state_dict(linear.state_dict())
    hidden = torch.randn(3, 6)
    assert torch.equal(layer.logits(hidden), linear(hidden))


def test_module_shares_a_weight():
    embedding = torch.nn.Embedding(40, 6)
    before = embedding.weight.clone()
    layer = fy.nn.LinearEntmaxLoss(6, 40, bias=False, weight=embedding.weight)
    assert layer.weight is embedding.weight
    assert torch.equal(embedding.weight, before)  # not initialised again
    layer(embedding(torch.tensor([1, 2])), torch.tensor([3, 4])).backward()
    assert embedding.weight.grad is not None
    assert "tied" in repr(layer)


def test_module_learns_alpha():
    layer = fy.nn.LinearEntmaxLoss(6, 40, 1.3, learnable=True)
    loss = layer(torch.randn(5, 6), torch.tensor([0, 3, 39, 7, 3]))
    loss.backward()
    assert layer.alpha_logit.grad != 0
    assert torch.allclose(layer.alpha, torch.tensor(1.3))
    assert layer.predict(torch.randn(2, 6)).sizes.shape == (2,)


def test_module_learns_with_sparse_gradients():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    layer = fy.nn.LinearEntmaxLoss(8, 30, bias=False, sparse_grad=True)
    optimizer = torch.optim.SparseAdam(layer.parameters(), lr=0.05)
    hidden = torch.randn(60, 8, generator=generator)
    target = torch.arange(60) % 30
    first = layer(hidden, target).item()
    for _ in range(150):
        optimizer.zero_grad()
        layer(hidden, target).backward()
        assert layer.weight.grad.is_sparse
        optimizer.step()
    assert layer(hidden, target).item() < 0.3 * first


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fy.nn.LinearEntmaxLoss(6, 40, -0.5), "`alpha` must be above 0"),
        (
            lambda: fy.nn.LinearEntmaxLoss(6, 40, weight=torch.zeros(40, 6)),
            "expected `weight` to be a Parameter of shape (40, 6), but got (40, 6)",
        ),
        (lambda: fy.nn.LinearEntmaxLoss(6, 40, reduction="x"), "expected `reduction`"),
    ],
)
def test_module_errors(make, said):
    with pytest.raises(fy.FenchelError) as error:
        make()
    assert said in str(error.value)
