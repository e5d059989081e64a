"""`fy.entmax_attention` inside torch.compile and torch.func, and its second derivatives."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fenchel as fy
from tests.attention.cases import ALPHAS, assert_same, gradients, make
from tests.regularizers.cases import randn

compiled = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, of itself
alphas = pytest.mark.parametrize("alpha", ALPHAS)


def transposed(q, k, v, alpha, **kwargs):
    """As models call it: heads out of the middle, and back."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return fy.entmax_attention(q, k, v, alpha=alpha, **kwargs).transpose(1, 2)


def assert_compiles(function, inputs, **kwargs):
    torch._dynamo.reset()
    wanted, got = function(*inputs), torch.compile(function, fullgraph=True, **kwargs)(*inputs)
    assert_same(got, wanted, inputs, 1e-12 if got.dtype == torch.float64 else 1e-6, False)


@compiled
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "gqa"])
def test_compile_aot_eager(kind, backend, rng):
    q, k, v = make(rng, (2, 7), 4, 4, 5, 4)  # (batch, length, heads, width)
    if kind == "gqa":
        k, v = (x.detach()[:, :, :2].requires_grad_() for x in (k, v))
    alpha = torch.tensor([1.2, 1.5, 2.0, 1.0], dtype=torch.float64, requires_grad=True)
    kwargs = {"is_causal": kind == "causal", "enable_gqa": kind == "gqa"}
    if kind == "mask":
        kwargs["attn_mask"] = torch.rand(7, 7, generator=rng) < 0.7

    def f(q, k, v, alpha):
        return transposed(q, k, v, alpha, **kwargs)

    assert_compiles(f, (q, k, v, alpha), backend="aot_eager")


@compiled
def test_compile_with_a_learned_mask(backend, rng):
    q, k, v = make(rng)
    mask = randn(3, 7, 9, rng=rng).requires_grad_()
    assert_compiles(
        lambda *x: fy.entmax_attention(*x[:3], x[3], alpha=1.5),
        (q, k, v, mask),
        backend="aot_eager",
    )


@compiled
def test_compile_inductor(rng):
    q, k, v = make(rng, (2, 7), 3, 3, 5, 4, dtype=torch.float32)
    with torch._inductor.utils.fresh_cache():
        assert_compiles(lambda *x: transposed(*x, 1.5, is_causal=True), (q, k, v))


@compiled
def test_compile_with_changing_lengths(backend, rng):
    torch._dynamo.reset()
    f = torch.compile(fy.entmax_attention, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (3, 5):
        q, k, v = make(rng, queries=length, keys=length + 1)
        assert_same(f(q, k, v), fy.entmax_attention(q, k, v), (q, k, v), 1e-12, False)


@compiled
def test_compiled_dropout_is_drawn_anew(backend, rng):
    torch._dynamo.reset()
    inputs = [x.detach() for x in make(rng)]
    f = torch.compile(
        lambda *x: fy.entmax_attention(*x, dropout_p=0.5) - fy.entmax_attention(*x, dropout_p=0.5),
        fullgraph=True,
        backend="aot_eager",
    )
    assert (f(*inputs) != 0).any()
    assert not torch.equal(f(*inputs), f(*inputs))


@compiled
def test_opcheck(rng):
    if fy.backends().active != "native":
        pytest.skip("the op is the native core's")
    q, k, v = (x.detach().transpose(1, 2).requires_grad_() for x in make(rng, (2, 3), 3, 3))
    alpha = torch.full((2, 3), 1.5, dtype=torch.float64, requires_grad=True)
    mask = randn(2, 3, 3, 3, rng=rng).requires_grad_()
    arguments = (q, k, v, mask, alpha, 0.0, False, 0.5)
    torch.library.opcheck(torch.ops.fenchel.entmax_attention, arguments)


@alphas
@pytest.mark.parametrize("is_causal", [False, True])
def test_func(alpha, is_causal, backend, rng):
    q, k, v = (x.detach() for x in make(rng, (2, 3), 4, 5))

    def f(q, k, v):
        return fy.entmax_attention(q, k, v, alpha=alpha, is_causal=is_causal)

    wanted = f(q, k, v)
    torch.testing.assert_close(torch.func.vmap(f)(q, k, v), wanted)
    got = torch.func.vmap(f, in_dims=(0, None, None))(q, k[0], v[0])
    torch.testing.assert_close(got[0], wanted[0])

    def total(q, k, v):
        return f(q, k, v).sin().sum()

    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    theirs = torch.autograd.grad(total(*leaves), leaves)
    mine = torch.func.grad(total, (0, 1, 2))(q, k, v)
    torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-12)
    directions = [randn(*x.shape, rng=rng) for x in (q, k, v)]
    value, slope = torch.func.jvp(total, (q, k, v), tuple(directions))
    torch.testing.assert_close(value, total(q, k, v))
    along = sum((g * t).sum() for g, t in zip(theirs, directions, strict=True))
    torch.testing.assert_close(slope, along, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_second_derivatives(alpha, backend, rng):
    q, k, v = make(rng, (1, 1), 2, 3, 2, 2, scale=0.3)
    assert torch.autograd.gradgradcheck(lambda *x: fy.entmax_attention(*x, alpha=alpha), (q, k, v))


def test_second_derivatives_in_alpha_and_mask(backend, rng):
    q, _, v = make(rng, (1, 2), 2, 3, 2, 2, scale=0.3)
    k = randn(1, 2, 3, 2, rng=rng)
    alpha = torch.tensor([1.3, 1.6], dtype=torch.float64, requires_grad=True)
    mask = randn(2, 3, rng=rng, scale=0.1).requires_grad_()

    def f(q, v, alpha, mask):
        return fy.entmax_attention(q, k, v, mask, alpha=alpha)

    assert torch.autograd.gradgradcheck(f, (q, v, alpha, mask))


def test_batched_gradients(backend, rng):
    q, k, v = make(rng, (1, 1), 3, 4, 2, 2)
    out = fy.entmax_attention(q, k, v)
    several = torch.eye(6, dtype=torch.float64).view(6, 1, 1, 3, 2)
    (got,) = torch.autograd.grad(out, q, several, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(out, q, one, retain_graph=True)[0] for one in several]
    torch.testing.assert_close(got, torch.stack(each))


def test_backward_twice_and_in_place(backend, rng):
    q, k, v = make(rng)
    out = fy.entmax_attention(q, k, v)
    first, second = gradients(out, (q, k, v)), gradients(out, (q, k, v))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with torch.no_grad():
        k.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_checkpointing(dropout_p, backend, rng):
    inputs = make(rng)

    def f(q, k, v):
        return fy.entmax_attention(q, k, v, dropout_p=dropout_p)

    torch.manual_seed(5)
    wanted = f(*inputs)
    torch.manual_seed(5)
    got = checkpoint(f, *inputs, use_reentrant=False)
    assert_same(got, wanted, inputs, 0.0, retain_graph=False)


def test_vmap_of_the_registered_op_is_refused(rng):
    q, k, v = (x.detach() for x in make(rng, (2, 2, 3)))
    alpha = torch.tensor([1.5], dtype=torch.float64)
    op = torch.ops.fenchel.entmax_attention
    with pytest.raises(fy.FenchelError, match=r"no torch\.func\.vmap of the registered op"):
        torch.func.vmap(lambda q, k, v: op(q, k, v, None, alpha, 0.0, False, 1.0))(q, k, v)
