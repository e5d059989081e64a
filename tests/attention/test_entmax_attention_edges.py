"""`fy.entmax_attention`: precision, dropout, compilers and transforms, memory, threads, errors."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.attention.cases import ALPHAS, assert_same, composed, gradients, make, weights_of
from tests.losses.test_linear_entmax_loss_edges import LargestTensor
from tests.regularizers.cases import randn

SDPA = F.scaled_dot_product_attention
alphas = pytest.mark.parametrize("alpha", ALPHAS)
compiled = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, of itself


# -- precision ---------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("is_causal", [False, True])
def test_long_sequences_in_float32(alpha, is_causal, rng):
    q, k, v = make(rng, (1, 1), 3000, 3000, 64, 64, dtype=torch.float32, scale=1.0)
    with torch.no_grad():
        got = fy.entmax_attention(q, k, v, alpha, is_causal=is_causal)
        rows = torch.tensor([0, 1, 7, 8, 63, 64, 1500, 2998, 2999])
        seen = torch.arange(3000) <= rows[:, None] if is_causal else None
        wanted = composed(q[:, :, rows].double(), k.double(), v.double(), alpha, seen)
    assert (got[:, :, rows].double() - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_gradients_in_float32(alpha, backend, rng):
    inputs = make(rng, (2, 2), 60, 70, 16, 16, dtype=torch.float32, scale=1.0)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    got = gradients(fy.entmax_attention(*inputs, alpha), inputs)
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
        got, theirs = fy.entmax_attention(*inputs, 1.0), SDPA(*inputs)
    assert got.dtype == theirs.dtype
    torch.testing.assert_close(got, theirs, atol=2e-2, rtol=2e-2)
    for grad, x in zip(gradients(got, inputs), inputs, strict=True):
        assert grad.dtype == x.dtype
        assert grad.isfinite().all()


def test_autocast_takes_mixed_dtypes(backend, rng):
    q, k, v = make(rng, dtype=torch.float32)
    mask = randn(7, 9, rng=rng, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fy.entmax_attention(q, k.bfloat16(), v, 1.5, mask)
    wanted = fy.entmax_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), 1.5, mask)
    assert torch.equal(got, wanted)


# -- dropout -----------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_dropout_averages_out(alpha, backend, rng):
    torch.manual_seed(0)
    q, k, v = (x.detach() for x in make(rng, (1, 2), 5, 9))
    many = [x.expand(4000, *x.shape[1:]) for x in (q, k, v)]
    got = fy.entmax_attention(*many, alpha, dropout_p=0.3)
    wanted = composed(q, k, v, alpha)
    p = weights_of(q, k, alpha)
    spread = ((p.square() @ v.square()) * 0.3 / 0.7 / 4000).sqrt()  # of the mean
    assert ((got.mean(0) - wanted[0]).abs() < 5 * spread[0] + 1e-12).all()
    assert (got[0] != got[1]).any()


def test_dropout_drops_its_share_and_rescales(backend, rng):
    torch.manual_seed(0)
    q = torch.zeros(1, 1, 500, 4)
    k, v = torch.zeros(1, 1, 40, 4), torch.eye(40)[None, None]
    p = fy.entmax_attention(q, k, v, 1.5, dropout_p=0.25)
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
        return fy.entmax_attention(q, k, v, alpha, mask, dropout_p=0.4)

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


# -- compilers and transforms ------------------------------------------------


def transposed(q, k, v, alpha, **kwargs):
    """As models call it: heads out of the middle, and back."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return fy.entmax_attention(q, k, v, alpha, **kwargs).transpose(1, 2)


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
    assert_compiles(lambda *x: fy.entmax_attention(*x[:3], 1.5, x[3]), (q, k, v, mask), backend="aot_eager")


@compiled
def test_compile_inductor(rng):
    q, k, v = make(rng, (2, 7), 3, 3, 5, 4, dtype=torch.float32)
    with torch._inductor.utils.fresh_cache():
        assert_compiles(lambda *x: transposed(*x, 1.5, is_causal=True), (q, k, v))


@compiled
def test_compile_with_changing_lengths(backend, rng):
    torch._dynamo.reset()
    f = torch.compile(fy.entmax_attention, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (3, 5, 8):
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
        return fy.entmax_attention(q, k, v, alpha, is_causal=is_causal)

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
    assert torch.autograd.gradgradcheck(lambda *x: fy.entmax_attention(*x, alpha), (q, k, v))


def test_second_derivatives_in_alpha_and_mask(backend, rng):
    q, _, v = make(rng, (1, 2), 2, 3, 2, 2, scale=0.3)
    k = randn(1, 2, 3, 2, rng=rng)
    alpha = torch.tensor([1.3, 1.6], dtype=torch.float64, requires_grad=True)
    mask = randn(2, 3, rng=rng, scale=0.1).requires_grad_()

    def f(q, v, alpha, mask):
        return fy.entmax_attention(q, k, v, alpha, mask)

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


def test_vmap_of_the_registered_op_is_refused(rng):
    q, k, v = (x.detach() for x in make(rng, (2, 2, 3)))
    alpha = torch.tensor([1.5], dtype=torch.float64)
    op = torch.ops.fenchel.entmax_attention
    with pytest.raises(fy.FenchelError, match=r"no torch\.func\.vmap of the registered op"):
        torch.func.vmap(lambda q, k, v: op(q, k, v, None, alpha, 0.0, False, 1.0))(q, k, v)


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
        fy.entmax_attention(q, k, v, 1.0)
    assert watched.entries <= 512 * 4


@alphas
def test_a_row_does_not_depend_on_its_batch(alpha, rng):
    """Bit for bit on the core: a query's sums do not know who is beside it."""
    if fy.backends().active != "native":
        pytest.skip("torch's products depend on the shapes")
    q, k, v = make(rng, (3, 2), 21, 30, 16, 16, dtype=torch.float32)
    out = fy.entmax_attention(q, k, v, alpha)
    grads = gradients(out, (q, k, v))
    whole = torch.linspace(-1, 2, out.numel()).sin().view_as(out)
    for b, h in [(0, 0), (2, 1)]:
        part = [x.detach()[b : b + 1, h : h + 1].clone().requires_grad_() for x in (q, k, v)]
        alone = fy.entmax_attention(*part, alpha)
        assert torch.equal(alone[0, 0], out[b, h])
        own = torch.autograd.grad(alone, part, whole[b : b + 1, h : h + 1])
        for mine, theirs in zip(own, grads, strict=True):
            assert torch.equal(mine[0, 0], theirs[b, h])
    few = fy.entmax_attention(q[:, :, 5:14], k, v, alpha)
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
        out = fy.entmax_attention(q, k, v, learned, is_causal=True)
        torch.manual_seed(3)
        dropped = fy.entmax_attention(q, k, v, learned, dropout_p=0.2)
        results.append([out, dropped, *gradients(out + dropped, (q, k, v, learned))])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


# -- errors ------------------------------------------------------------------

Q, K, V = torch.zeros(2, 4, 7, 5), torch.zeros(2, 4, 9, 5), torch.zeros(2, 4, 9, 3)
WRONG = [
    ([0.0], K, V, {}, "expected `query` to be a floating tensor, but got list"),
    (Q, K.long(), V, {}, "expected `key` to be a floating tensor, but got torch.int64"),
    (Q, K, None, {}, "expected `value` to be a floating tensor, but got NoneType"),
    (Q[0, 0, 0], K, V, {}, "expected `query` of shape (…, length, width), but got (5,)"),
    (Q, K.double(), V, {}, "`query` is torch.float32 on cpu and `key` torch.float64 on cpu"),
    (Q, K, V.to("meta"), {}, "`value` torch.float32 on meta"),
    (Q, K[..., :4], V, {}, "expected `query` and `key` of one width of at least 1, but got 5 and 4"),
    (Q[..., :0], K[..., :0], V, {}, "one width of at least 1, but got 0 and 0"),
    (Q, K[..., :8, :], V, {}, "one length of at least 1, but got 8 and 9"),
    (Q, K[..., :0, :], V[..., :0, :], {}, "one length of at least 1, but got 0 and 0"),
    (Q, K[:, :2], V[:, :2], {}, "with fewer heads of keys use enable_gqa=True"),
    (Q, K[:1], V, {}, "expected one shape in front of (length, width), but got"),
    (Q, K[:, :3], V[:, :3], {"enable_gqa": True}, "heads of `query` (4) that are a multiple of"),
    (Q, K[:, :2], V[:, :1], {"enable_gqa": True}, "those of `key` (2) and `value` (1)"),
    (Q, K[:, :0], V[:, :0], {"enable_gqa": True}, "those of `key` (0) and `value` (0)"),
    (Q, K[:1], V[:1], {"enable_gqa": True}, "one batch shape with `enable_gqa`, but got"),
    (Q, K, V, {"is_causal": 1}, "expected `is_causal` to be a bool, but got 1"),
    (Q, K, V, {"enable_gqa": None}, "expected `enable_gqa` to be a bool, but got None"),
    (Q, K, V, {"dropout_p": 1.5}, "`dropout_p` must be in [0, 1]; got 1.5"),
    (Q, K, V, {"dropout_p": -0.5}, "`dropout_p` must be at least 0"),
    (Q, K, V, {"dropout_p": "a"}, "expected `dropout_p` to be a number, but got str"),
    (Q, K, V, {"scale": "a"}, "expected `scale` to be a number, but got str"),
    (Q, K, V, {"scale": math.nan}, "`scale` must be at least -inf (and not NaN); got nan"),
    (Q, K, V, {"is_causal": True, "attn_mask": torch.ones(7, 9).bool()}, "but got both; put the tr"),
    (Q, K, V, {"attn_mask": [True]}, "a boolean (True = look) or floating (added) tensor, but got l"),
    (Q, K, V, {"attn_mask": torch.ones(7, 9).long()}, "tensor, but got torch.int64"),
    (Q, K, V, {"attn_mask": torch.ones(9, 7)}, "broadcastable to (2, 4, 7, 9), but got (9, 7)"),
    (Q, K, V, {"attn_mask": torch.ones(7, 9, device="meta")}, "on cpu, but it is on meta"),
    (Q, K, V, {"alpha": 0.9}, "`alpha` must be at least 1 (1 is softmax, 2 is sparsemax); got 0.9"),
    (Q, K, V, {"alpha": math.nan}, "`alpha` must be at least 1"),
    (Q, K, V, {"alpha": "a"}, "`alpha` to be a number or a torch.Tensor, but got str"),
    (Q, K, V, {"alpha": torch.ones(4).long()}, "expected `alpha` of a floating dtype"),
    (Q, K, V, {"alpha": torch.ones(3)}, "one number a head, shape (4,) or broadcastable to (2, 4, "),
    (Q, K, V, {"alpha": torch.ones(2, 4)}, "(2, 4, 1, 1), but got (2, 4)"),
]  # fmt: skip


@pytest.mark.parametrize(("q", "k", "v", "kwargs", "said"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_arguments(q, k, v, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        fy.entmax_attention(q, k, v, **kwargs)
    message = str(error.value)
    assert message.startswith("entmax_attention: ")
    assert said in message
    assert message.endswith(".")
    assert "\n" not in message
