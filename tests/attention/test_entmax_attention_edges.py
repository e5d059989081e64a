"""`fy.entmax_attention`: precision, dropout, memory, batches, threads."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.attention.cases import ALPHAS, composed, gradients, make, weights_of
from tests.regularizers.cases import randn
from tests.watch import LargestTensor

SDPA = F.scaled_dot_product_attention
alphas = pytest.mark.parametrize("alpha", ALPHAS)


# -- precision ---------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("is_causal", [False, True])
def test_long_sequences_in_float32(alpha, is_causal, rng):
    q, k, v = make(rng, (1, 1), 3000, 3000, 64, 64, dtype=torch.float32, scale=1.0)
    with torch.no_grad():
        got = fy.entmax_attention(q, k, v, alpha=alpha, is_causal=is_causal)
        rows = torch.tensor([0, 1, 7, 8, 63, 64, 1500, 2998, 2999])
        seen = torch.arange(3000) <= rows[:, None] if is_causal else None
        wanted = composed(q[:, :, rows].double(), k.double(), v.double(), alpha, seen)
    assert (got[:, :, rows].double() - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_gradients_in_float32(alpha, backend, rng):
    inputs = make(rng, (2, 2), 60, 70, 16, 16, dtype=torch.float32, scale=1.0)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    got = gradients(fy.entmax_attention(*inputs, alpha=alpha), inputs)
    for mine, theirs in zip(got, gradients(composed(*wide, alpha), wide), strict=True):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [None, "bool", "float", "causal"])
def test_half_is_computed_in_float32(dtype, kind, backend, rng):
    inputs = make(rng, dtype=dtype)
    kwargs = {"is_causal": kind == "causal"}
    if kind == "bool":
        kwargs["attn_mask"] = torch.rand(7, 9, generator=rng) < 0.7
    elif kind == "float":
        kwargs["attn_mask"] = randn(7, 9, rng=rng, dtype=dtype)
    wide = [x.detach().float().requires_grad_() for x in inputs]
    got, wanted = fy.entmax_attention(*inputs, **kwargs), fy.entmax_attention(*wide, **kwargs)
    assert got.dtype == dtype
    assert torch.equal(got, wanted.to(dtype))
    upstream = randn(*got.shape, rng=rng, dtype=dtype)
    mine = torch.autograd.grad(got, inputs, upstream)
    theirs = torch.autograd.grad(wanted, wide, upstream.float())
    for a, b in zip(mine, theirs, strict=True):
        assert torch.equal(a, b.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_autocast_like_torch(dtype, backend, rng):
    inputs = make(rng, d_value=5, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, theirs = fy.entmax_attention(*inputs, alpha=1.0), SDPA(*inputs)
    assert got.dtype == theirs.dtype
    # bfloat16 has 8 bits: torch rounds the weights to it before the product, we do not.
    torch.testing.assert_close(got, theirs, atol=2e-2, rtol=2e-2)
    for grad, x in zip(gradients(got, inputs), inputs, strict=True):
        assert grad.dtype == x.dtype
        assert grad.isfinite().all()


def test_autocast_takes_mixed_dtypes(backend, rng):
    q, k, v = make(rng, dtype=torch.float32)
    mask = randn(7, 9, rng=rng, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fy.entmax_attention(q, k.bfloat16(), v, mask, alpha=1.5)
    wanted = fy.entmax_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask, alpha=1.5)
    assert torch.equal(got, wanted)


# -- dropout -----------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_dropout_averages_out(alpha, backend, rng):
    torch.manual_seed(0)
    q, k, v = (x.detach() for x in make(rng, (1, 2), 5, 9))
    many = [x.expand(4000, *x.shape[1:]) for x in (q, k, v)]
    got = fy.entmax_attention(*many, alpha=alpha, dropout_p=0.3)
    wanted = composed(q, k, v, alpha)
    p = weights_of(q, k, alpha)
    spread = ((p.square() @ v.square()) * 0.3 / 0.7 / 4000).sqrt()  # of the mean
    assert ((got.mean(0) - wanted[0]).abs() < 5 * spread[0] + 1e-12).all()
    assert (got[0] != got[1]).any()


def test_dropout_drops_its_share_and_rescales(backend, rng):
    torch.manual_seed(0)
    q = torch.zeros(1, 1, 500, 4)
    k, v = torch.zeros(1, 1, 40, 4), torch.eye(40)[None, None]
    p = fy.entmax_attention(q, k, v, alpha=1.5, dropout_p=0.25)
    kept = p > 0
    assert abs(kept.float().mean() - 0.75) < 0.02
    torch.testing.assert_close(p[kept], torch.full_like(p[kept], 1 / 40 / 0.75))


@pytest.mark.parametrize("learning", [False, True])
def test_dropout_of_everything_and_of_nothing(learning, backend, rng):
    inputs = make(rng)
    given = inputs if learning else [x.detach() for x in inputs]
    out = fy.entmax_attention(*given, dropout_p=1.0)
    assert (out == 0).all()
    if learning:
        assert all((g == 0).all() for g in gradients(out, inputs))
    state = torch.get_rng_state()
    assert torch.equal(fy.entmax_attention(*given, dropout_p=0), fy.entmax_attention(*given))
    assert torch.equal(torch.get_rng_state(), state)  # no random number was used


@pytest.mark.parametrize("with_mask", [False, True])
def test_gradients_follow_the_drawn_mask(with_mask, backend, rng):
    q, k, v = make(rng, (1, 2), 4, 6, 3, 2, scale=0.3)  # the supports do not change with eps
    alpha = torch.tensor([1.3, 1.5], dtype=torch.float64, requires_grad=True)
    mask = randn(4, 6, rng=rng, scale=0.1).requires_grad_() if with_mask else None

    def f(q, k, v, alpha, mask):
        torch.manual_seed(7)
        return fy.entmax_attention(q, k, v, mask, alpha=alpha, dropout_p=0.4)

    assert torch.autograd.gradcheck(f, (q, k, v, alpha, mask))


def test_dropout_follows_the_seed(backend, rng):
    inputs = make(rng)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(fy.entmax_attention(*inputs, dropout_p=0.5))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_no_second_derivative_with_dropout(rng):
    if fy.backends().active != "native":
        pytest.skip("the reference has one")
    q, k, v = make(rng)
    out = fy.entmax_attention(q, k, v, dropout_p=0.5)
    with pytest.raises(fy.FenchelError, match="expected no second derivative with dropout"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


# -- memory, batches, threads ------------------------------------------------


@pytest.mark.parametrize("is_causal", [False, True])
def test_memory_grows_with_the_support(is_causal, rng):
    if fy.backends().active != "native":
        pytest.skip("the reference has dense weights")
    length, d = 2048, 8
    q, k, v = make(rng, (1, 1), length, length, d, d, dtype=torch.float32, scale=20.0)
    with LargestTensor() as watched:
        composed(q, k, v, is_causal=is_causal).sum().backward()
    assert watched.entries >= length**2  # the watch works
    with LargestTensor() as watched:
        out = fy.entmax_attention(q, k, v, is_causal=is_causal)
        (out * v.detach()).sum().backward()
    support = int((weights_of(q, k, is_causal=is_causal) > 0).sum())
    assert support < length * 32
    assert watched.entries <= max(support, length * d, length + 1)


def test_nothing_is_kept_without_gradients(rng):
    if fy.backends().active != "native":
        pytest.skip("the reference has dense weights")
    q, k, v = (x.detach() for x in make(rng, (1, 1), 512, 512, 4, 4))
    with LargestTensor() as watched:
        fy.entmax_attention(q, k, v, alpha=1.0)
    assert watched.entries <= 512 * 4


@alphas
def test_a_row_does_not_depend_on_its_batch(alpha, rng):
    """Bit for bit on the core: a query's sums do not know who is beside it."""
    if fy.backends().active != "native":
        pytest.skip("torch's products depend on the shapes")
    q, k, v = make(rng, (3, 2), 21, 30, 16, 16, dtype=torch.float32)
    out = fy.entmax_attention(q, k, v, alpha=alpha)
    grads = gradients(out, (q, k, v))
    whole = torch.linspace(-1, 2, out.numel()).sin().view_as(out)
    for b, h in [(0, 0), (2, 1)]:
        part = [x.detach()[b : b + 1, h : h + 1].clone().requires_grad_() for x in (q, k, v)]
        alone = fy.entmax_attention(*part, alpha=alpha)
        assert torch.equal(alone[0, 0], out[b, h])
        own = torch.autograd.grad(alone, part, whole[b : b + 1, h : h + 1])
        for mine, theirs in zip(own, grads, strict=True):
            assert torch.equal(mine[0, 0], theirs[b, h])
    few = fy.entmax_attention(q[:, :, 5:14], k, v, alpha=alpha)
    assert torch.equal(few, out[:, :, 5:14])


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 1.3])
@pytest.mark.parametrize("heads", [1, 8])
def test_threads_change_no_digit(alpha, heads, threads, rng):
    if fy.backends().active != "native":
        pytest.skip("torch's products are torch's")
    q, k, v = make(rng, (2, heads), 130, 140, 16, 16, dtype=torch.float32)
    learned = torch.full((heads,), alpha, requires_grad=True)
    results = []
    for count in (1, 2, 3, 5):
        threads(count)
        out = fy.entmax_attention(q, k, v, alpha=learned, is_causal=True)
        torch.manual_seed(3)
        dropped = fy.entmax_attention(q, k, v, alpha=learned, dropout_p=0.2)
        results.append([out, dropped, *gradients(out + dropped, (q, k, v, learned))])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
