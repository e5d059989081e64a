"""`fy.linear_entmax_loss` is `fy.entmax_loss` of `F.linear`: values and all gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from fenchel.losses import _output_layer as layer
from tests.losses.linear_cases import ALPHAS, assert_same, composed, gradients, make

pytestmark = pytest.mark.usefixtures("backend")
alphas = pytest.mark.parametrize("alpha", ALPHAS)
reductions = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])


@pytest.fixture(params=["sparse", "dense", "mixed"])
def chunks(request, monkeypatch):
    """Several chunks: all listed, all computed again, or some of each."""
    monkeypatch.setattr(layer, "chunk_size", lambda rows: 4)
    share = {"sparse": 1.0, "dense": 0.0, "mixed": 0.2}[request.param]
    monkeypatch.setattr(layer, "DENSE_SHARE", share)
    return request.param


@alphas
@reductions
@pytest.mark.parametrize("with_bias", [False, True])
def test_like_the_composition(alpha, reduction, with_bias, rng):
    hidden, weight, bias, target = make(13, 29, 7, rng, ignored=-100)
    inputs = (hidden, weight, bias) if with_bias else (hidden, weight)
    bias = bias if with_bias else None
    assert_same(hidden, weight, target, alpha, bias=bias, reduction=reduction, inputs=inputs)


@alphas
def test_float32_against_float64(alpha, rng):
    hidden, weight, bias, target = make(40, 200, 16, rng, dtype=torch.float32)
    loss = fy.linear_entmax_loss(hidden, weight, target, alpha, bias=bias, reduction="none")
    got = gradients(loss, (hidden, weight, bias))
    wide = [x.detach().double().requires_grad_() for x in (hidden, weight, bias)]
    truth = composed(wide[0], wide[1], target, alpha, bias=wide[2], reduction="none")
    torch.testing.assert_close(loss.double(), truth, atol=1e-5, rtol=1e-6)
    for mine, theirs in zip(got, gradients(truth, wide), strict=True):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-5, rtol=1e-6)


@alphas
@pytest.mark.parametrize("kind", ["0-d", "(1,)", "row", "float32"])
def test_learned_alpha(alpha, kind, chunks, rng):
    hidden, weight, bias, target = make(13, 9, 5, rng, ignored=-100)
    shape = {"0-d": (), "(1,)": (1,), "row": (13, 1), "float32": ()}[kind]
    dtype = torch.float32 if kind == "float32" else torch.float64
    learned = torch.full(shape, alpha, dtype=dtype)
    if kind == "row" and alpha < math.inf:
        learned += torch.rand(13, 1, generator=rng)
    learned.requires_grad_()
    inputs = (hidden, weight, bias, learned)
    assert_same(hidden, weight, target, learned, bias=bias, reduction="none", inputs=inputs)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.5])
def test_alpha_alone_is_learned(alpha, rng):
    hidden, weight, _, target = make(6, 9, 5, rng)
    learned = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    frozen = hidden.detach(), weight.detach(), target
    assert_same(*frozen, learned, inputs=(learned,))
    if alpha > 1:

        def f(a):
            return fy.linear_entmax_loss(*frozen, a)

        assert torch.autograd.gradcheck(f, learned, atol=1e-6)


@alphas
def test_alpha_for_every_row_of_several_dimensions(alpha, rng):
    hidden, weight, bias, target = make((3, 4), 9, 5, rng)
    for shape in [(4, 1), (3, 1, 1), (3, 4, 1)]:
        learned = torch.full(shape, alpha, dtype=torch.float64, requires_grad=True)
        inputs = (hidden, weight, bias, learned)
        assert_same(hidden, weight, target, learned, bias=bias, inputs=inputs)


@alphas
def test_gradcheck(alpha, rng):
    hidden, weight, bias, target = make(4, 6, 3, rng, scale=0.3)

    def f(h, w, b):
        return fy.linear_entmax_loss(h, w, target, alpha, bias=b)

    assert torch.autograd.gradcheck(f, (hidden, weight, bias), atol=1e-6)


@alphas
@reductions
def test_any_chunks_give_the_same(alpha, reduction, chunks, rng):
    hidden, weight, bias, target = make(13, 29, 7, rng, scale=2.0, ignored=-100)
    hidden.data[:4] *= 0.01  # large supports in the first chunk
    inputs = (hidden, weight, bias)
    assert_same(hidden, weight, target, alpha, bias=bias, reduction=reduction, inputs=inputs)


def test_mixed_chunks_are_mixed(monkeypatch, rng):
    monkeypatch.setattr(layer, "chunk_size", lambda rows: 4)
    hidden, weight, bias, target = make(13, 200, 7, rng, scale=3.0)
    hidden.data[4:8] *= 0.01
    bias.data *= 0.01
    a = torch.tensor([1.5], dtype=torch.float64)
    with torch.no_grad():
        *_, lists, dense = layer.chunked_forward(hidden, weight, bias, target, a, True, False, True)
    assert dense.tolist() == [False, True, False, False]
    assert lists.starts[4] == lists.starts[8] > 0  # nothing is kept of the dense chunk
    assert_same(hidden, weight, target, bias=bias, inputs=(hidden, weight, bias))


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 255, 257, 1030])
def test_chunk_borders(rows, rng):
    hidden, weight, bias, target = make(rows, 5, 2, rng)
    assert_same(hidden, weight, target, bias=bias, inputs=(hidden, weight, bias))


@alphas
@pytest.mark.parametrize("smoothing", [0.1, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_label_smoothing(alpha, smoothing, weighted, masked, learned, rng):
    hidden, weight, bias, target = make(13, 9, 5, rng, ignored=-100)
    if masked:
        bias.data[[4, 7]] = -math.inf
        target[(target == 4) | (target == 7)] = 0
    class_weight = 0.01 + torch.rand(9, generator=rng).double() if weighted else None
    inputs = [hidden, weight, bias]
    if learned:
        alpha = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        inputs.append(alpha)
    kwargs = {"label_smoothing": smoothing, "class_weight": class_weight, "bias": bias}
    for reduction in ("mean", "sum", "none"):
        assert_same(hidden, weight, target, alpha, reduction=reduction, inputs=inputs, **kwargs)


@pytest.mark.parametrize("alpha", [3.0, 30.0, 3000.0])
def test_label_smoothing_with_tiny_class_weights(alpha, rng):
    hidden, weight, bias, target = make(5, 9, 5, rng)
    class_weight = torch.rand(9, generator=rng).double() * 1e-12
    for smoothing in (0.1, 1.0):
        kwargs = {"label_smoothing": smoothing, "class_weight": class_weight, "bias": bias}
        assert_same(hidden, weight, target, alpha, inputs=(hidden, weight, bias), **kwargs)
    none = torch.zeros(9, dtype=torch.float64)
    kwargs = {"label_smoothing": 0.1, "class_weight": none, "reduction": "sum"}
    assert fy.linear_entmax_loss(hidden, weight, target, alpha, **kwargs) == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_one_alpha_a_row_with_smoothing(smoothing, rng):
    hidden, weight, bias, target = make(13, 9, 5, rng, ignored=-100)
    bias.data[4] = -math.inf
    target[target == 4] = 0
    alpha = 1 + torch.rand(13, 1, generator=rng).double()
    alpha[0], alpha[2], alpha[3] = 1.0, 2.0, math.inf
    alpha.requires_grad_()
    inputs = (hidden, weight, bias, alpha)
    kwargs = {"bias": bias, "label_smoothing": smoothing}
    assert_same(hidden, weight, target, alpha, inputs=inputs, **kwargs)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_masked_gold_class_costs_infinity(smoothing, rng):
    hidden, weight, bias, target = make(5, 9, 5, rng)
    target[:] = torch.tensor([4, 0, 1, 2, 3])
    bias.data[4] = -math.inf
    kwargs = {"bias": bias, "label_smoothing": smoothing, "reduction": "none"}
    got = fy.linear_entmax_loss(hidden, weight, target, **kwargs)
    wanted = composed(hidden, weight, target, **kwargs)
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
    assert got[0] == math.inf
    found = gradients(got, (hidden, weight, bias))
    assert all(x.isfinite().all() for x in found)
    torch.testing.assert_close(found[:2], gradients(wanted, (hidden, weight)))


@alphas
def test_label_smoothing_at_its_minimum_is_zero(alpha, rng):
    if alpha == math.inf:
        pytest.skip("no scores have the smoothed target as their argmax")
    q = torch.full((1, 5), 0.04, dtype=torch.float64)
    q[0, 2] = 0.84
    scores = fy.Tsallis(alpha).gradient_rows(q)[0]
    hidden = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.zeros(5, 2, dtype=torch.float64, requires_grad=True)
    scores.requires_grad_()
    loss = fy.linear_entmax_loss(
        hidden, weight, torch.tensor([2, 2, 2]), alpha, bias=scores, label_smoothing=0.2
    )
    assert 0 <= loss < 1e-14
    assert torch.autograd.grad(loss, scores)[0].abs().max() < 1e-12


@reductions
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_class_weights_and_any_ignored_class(reduction, smoothing, rng):
    hidden, weight, bias, target = make(13, 9, 5, rng, ignored=3)
    class_weight = torch.rand(9, generator=rng).double()
    class_weight[0] = 0
    for ignore_index in (3, -100, 0, -1):
        assert_same(
            hidden,
            weight,
            target.masked_fill(target == 3, ignore_index),
            bias=bias,
            inputs=(hidden, weight, bias),
            class_weight=class_weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=smoothing,
        )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_ignored_rows_may_hold_anything(smoothing, weighted, chunks, rng):
    hidden, weight, bias, target = make(13, 9, 5, rng, ignored=-100)
    kept = target != -100
    poisoned = hidden.detach().clone()
    poisoned[1], poisoned[4], poisoned[7] = math.nan, math.inf, -math.inf
    poisoned.requires_grad_()
    alpha = torch.full((13, 1), 1.5, dtype=torch.float64, requires_grad=True)
    class_weight = 0.1 + torch.rand(9, generator=rng).double() if weighted else None
    a = alpha if not (weighted and smoothing) else 1.5
    kwargs = {"bias": bias, "label_smoothing": smoothing, "class_weight": class_weight}
    loss = fy.linear_entmax_loss(poisoned, weight, target, a, **kwargs)
    wanted = composed(hidden[kept], weight, target[kept], 1.5, **kwargs)
    torch.testing.assert_close(loss, wanted, atol=1e-12, rtol=1e-12)
    got = torch.autograd.grad(loss, (weight, bias, poisoned), retain_graph=True)
    torch.testing.assert_close(got[:2], torch.autograd.grad(wanted, (weight, bias)))
    assert (got[2][~kept] == 0).all()
    if a is alpha:
        assert (torch.autograd.grad(loss, alpha)[0][~kept] == 0).all()


@pytest.mark.parametrize("lead", [(), (1,), (3, 4), (2, 3, 2)], ids=str)
@reductions
def test_leading_dimensions(lead, reduction, rng):
    hidden, weight, bias, target = make(lead, 9, 5, rng)
    inputs = (hidden, weight, bias)
    assert_same(hidden, weight, target, bias=bias, reduction=reduction, inputs=inputs)
    loss = fy.linear_entmax_loss(hidden, weight, target, reduction="none")
    assert loss.shape == lead


@pytest.mark.parametrize("classes", [1, 2, 3, 64, 65, 300])
@pytest.mark.parametrize("d", [1, 3, 130])
def test_sizes(classes, d, rng):
    hidden, weight, bias, target = make(6, classes, d, rng)
    assert_same(hidden, weight, target, bias=bias, inputs=(hidden, weight, bias))


def test_not_contiguous(chunks, rng):
    hidden, weight, bias, target = make(10, 10, 5, rng)
    turned = hidden.detach().t().contiguous().t().requires_grad_()
    heavy = weight.detach().repeat(1, 2).t().contiguous().t()[:, ::2].requires_grad_()
    thin = torch.stack([bias.detach(), bias.detach()], 1)[:, 0].requires_grad_()
    target = torch.stack([target, target], 1)[:, 0]
    inputs = (turned, heavy, thin)
    assert not any(x.is_contiguous() for x in (*inputs, target))
    assert_same(turned, heavy, target, bias=thin, inputs=inputs)
    batch = torch.randn(5, 3, 2, generator=rng).double().movedim(0, -1).requires_grad_()
    index = torch.randint(0, 10, (3, 2), generator=rng)
    assert_same(batch, weight, index, inputs=(batch, weight))


@pytest.mark.parametrize("needed", range(1, 8))
def test_gradients_of_some_inputs_only(needed, chunks, rng):
    hidden, weight, bias, target = make(9, 12, 5, rng)
    every = (hidden, weight, bias)
    given = [x if needed >> i & 1 else x.detach() for i, x in enumerate(every)]
    inputs = [x for x in given if x.requires_grad]
    assert_same(given[0], given[1], target, bias=given[2], inputs=inputs)


def test_no_gradients(chunks, rng):
    hidden, weight, bias, target = make(9, 12, 5, rng, ignored=-100)
    wanted = composed(hidden, weight, target, bias=bias)
    with torch.no_grad():
        got = fy.linear_entmax_loss(hidden, weight, target, bias=bias)
    assert not got.requires_grad
    torch.testing.assert_close(got, wanted.detach(), atol=1e-12, rtol=1e-12)
    with torch.inference_mode():
        assert torch.equal(fy.linear_entmax_loss(hidden, weight, target, bias=bias), got)
    frozen = [x.detach() for x in (hidden, weight)]
    assert not fy.linear_entmax_loss(*frozen, target).requires_grad


def test_losses_are_never_negative_and_zero_beyond_the_margin():
    hidden = torch.eye(4, dtype=torch.float64)
    weight = 3 * torch.eye(4, dtype=torch.float64)
    target = torch.arange(4)
    for alpha in (1.5, 2.0, 3.0, math.inf):
        loss = fy.linear_entmax_loss(hidden, weight, target, alpha, reduction="none")
        assert (loss == 0).all()
    assert fy.linear_entmax_loss(hidden, weight, target, 1.0) > 0


def test_alpha_one_is_cross_entropy(rng):
    hidden, weight, bias, target = make(13, 9, 5, rng, ignored=-100)
    got = fy.linear_entmax_loss(hidden, weight, target, 1, bias=bias)
    wanted = F.cross_entropy(F.linear(hidden, weight, bias), target)
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
