"""`fy.entmax_attention` against dense weights, and at alpha = 1 against torch's own attention."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.attention.cases import ALPHAS, assert_same, composed, gradients, make
from tests.regularizers.cases import randn

pytestmark = pytest.mark.usefixtures("backend")
alphas = pytest.mark.parametrize("alpha", ALPHAS)
SDPA = F.scaled_dot_product_attention


def boolean_mask(*shape, rng):
    """With a fully masked query, a single key, and all keys."""
    mask = torch.rand(shape, generator=rng) < 0.6
    flat = mask.view(-1, shape[-1])
    flat[0] = False
    flat[-1] = True
    flat[len(flat) // 2] = torch.arange(shape[-1]) == 2
    return mask


@alphas
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3, -1.0, 0.0])
def test_like_dense_weights(alpha, is_causal, scale, rng):
    q, k, v = make(rng)
    kwargs = {"is_causal": is_causal, "scale": scale}
    got = fy.entmax_attention(q, k, v, alpha=alpha, **kwargs)
    assert_same(got, composed(q, k, v, alpha, **kwargs), (q, k, v))
    with torch.no_grad():
        assert torch.equal(fy.entmax_attention(q, k, v, alpha=alpha, **kwargs), got)


@alphas
@pytest.mark.parametrize("shape", [(7, 9), (3, 7, 9), (2, 1, 7, 9), (2, 3, 1, 9), (2, 3, 7, 9)])
def test_boolean_masks(alpha, shape, rng):
    q, k, v = make(rng)
    mask = boolean_mask(*shape, rng=rng)
    got = fy.entmax_attention(q, k, v, mask, alpha=alpha)
    assert_same(got, composed(q, k, v, alpha, mask), (q, k, v))


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize(
    "shape", [(7, 9), (3, 7, 9), (2, 1, 7, 9), (1, 3, 1, 1), (2, 3, 7, 9), (9,)], ids=str
)
@pytest.mark.parametrize("learned", [False, True])
def test_floating_masks(alpha, shape, learned, rng):
    q, k, v = make(rng)
    mask = randn(*shape, rng=rng)
    if len(shape) > 1 and shape[-1] > 1:
        mask.masked_fill_(~boolean_mask(*shape, rng=rng), -math.inf)
    mask.requires_grad_(learned)
    inputs = (q, k, v, mask) if learned else (q, k, v)
    got = fy.entmax_attention(q, k, v, mask, alpha=alpha)
    assert_same(got, composed(q, k, v, alpha, mask), inputs)


@alphas
@pytest.mark.parametrize("shape", [(), (1,), (3,), (3, 1, 1), (2, 1, 1, 1), (2, 3, 1, 1)], ids=str)
def test_learned_alpha(alpha, shape, rng):
    q, k, v = make(rng)
    is_causal = len(shape) % 2 == 0
    learned = torch.full(shape, alpha, dtype=torch.float64)
    if alpha < math.inf and len(shape) > 0:
        learned += torch.rand(shape, generator=rng)
    learned.requires_grad_()
    got = fy.entmax_attention(q, k, v, alpha=learned, is_causal=is_causal)
    wanted = composed(q, k, v, learned, is_causal=is_causal)
    assert_same(got, wanted, (q, k, v, learned))
    frozen = fy.entmax_attention(
        q.detach(), k.detach(), v.detach(), alpha=learned, is_causal=is_causal
    )
    assert torch.equal(gradients(frozen, (learned,))[0], gradients(got, (learned,))[0])


@pytest.mark.parametrize(
    ("lead", "of_alpha", "of_mask"),
    [
        ((2, 1, 3), (3,), (7, 9)),
        ((2, 1, 3), (2, 1, 1, 1, 1), (2, 1, 1, 1, 9)),
        ((2, 2, 3), (2, 2, 3, 1, 1), (2, 3, 7, 1)),
        ((3,), (3,), (3, 7, 9)),
        ((3,), (3, 1, 1), (7, 9)),
        ((), (1,), (7, 9)),
    ],
    ids=str,
)
def test_learned_alpha_and_mask_in_other_dimensions(lead, of_alpha, of_mask, rng):
    q, k, v = make(rng, lead)
    alpha = (1 + torch.rand(of_alpha, generator=rng).double()).requires_grad_()
    mask = randn(*of_mask, rng=rng).requires_grad_()
    got = fy.entmax_attention(q, k, v, mask, alpha=alpha)
    assert_same(got, composed(q, k, v, alpha, mask), (q, k, v, alpha, mask))


def test_learned_alpha_against_finite_differences(rng):
    q, k, v = (x.detach() for x in make(rng))
    alpha = torch.tensor([1.2, 1.5, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: fy.entmax_attention(q, k, v, alpha=a), alpha)


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_gradcheck(alpha, rng):
    inputs = make(rng, lead=(1, 2), queries=3, keys=4, d=3, d_value=2, scale=0.5)
    assert torch.autograd.gradcheck(lambda *x: fy.entmax_attention(*x, alpha=alpha), inputs)


# -- torch's own, at alpha = 1 -----------------------------------------------


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 2), (1, 1, 2, 2)], ids=str)
@pytest.mark.parametrize(("is_causal", "scale"), [(False, None), (True, None), (True, 0.7)])
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (5, 9), (9, 5), (1, 9), (6, 1)])
def test_like_torch(lead, is_causal, scale, queries, keys, rng):
    q, k, v = make(rng, lead, queries, keys)
    kwargs = {"is_causal": is_causal, "scale": scale}
    got = fy.entmax_attention(q, k, v, alpha=1.0, **kwargs)
    assert_same(got, SDPA(q, k, v, **kwargs), (q, k, v))


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("whole", [False, True])
def test_masks_like_torch(lead, kind, whole, rng):
    q, k, v = make(rng, lead)
    shape = (*lead, 7, 9) if whole else (7, 9)
    mask = boolean_mask(*shape, rng=rng) if kind == "bool" else randn(*shape, rng=rng)
    if kind == "bool":
        mask[..., 0] = True  # without a key, torch's answer is its own
    got = fy.entmax_attention(q, k, v, alpha=1.0, attn_mask=mask)
    assert_same(got, SDPA(q, k, v, attn_mask=mask), (q, k, v))


@pytest.mark.parametrize("lead", [(), (2,), (3, 2)], ids=str)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_groups_of_heads(lead, kv_heads, is_causal, alpha, rng):
    q, _, _ = make(rng, (*lead, 4))
    _, k, v = make(rng, (*lead, kv_heads))
    kwargs = {"is_causal": is_causal, "enable_gqa": True}
    got = fy.entmax_attention(q, k, v, alpha=alpha, **kwargs)
    assert_same(got, composed(q, k, v, alpha, **kwargs), (q, k, v))
    if alpha == 1 and len(lead) == 1:
        assert_same(got, SDPA(q, k, v, **kwargs), (q, k, v))


def test_groups_of_heads_with_mask_and_alpha(rng):
    q, _, _ = make(rng, (2, 4))
    _, k, v = make(rng, (2, 2))
    mask = randn(4, 7, 9, rng=rng).requires_grad_()
    alpha = torch.tensor([1.0, 1.3, 1.7, 2.0], dtype=torch.float64, requires_grad=True)
    got = fy.entmax_attention(q, k, v, mask, alpha=alpha, enable_gqa=True)
    wanted = composed(q, k, v, alpha, mask, enable_gqa=True)
    assert_same(got, wanted, (q, k, v, mask, alpha))


# -- sizes -------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3, 16, 64, 65, 130])
@pytest.mark.parametrize("d_value", [1, 5, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_widths(d, d_value, dtype, rng):
    q, k, v = make(rng, (1, 2), 9, 21, d, d_value, dtype=dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    got = fy.entmax_attention(q, k, v)
    assert_same(got, composed(q, k, v), (q, k, v), tolerance)


@pytest.mark.parametrize("queries", [1, 3, 4, 5, 9, 17])
@pytest.mark.parametrize("keys", [1, 7, 8, 16, 17, 33, 100])
@pytest.mark.parametrize("is_causal", [False, True])
def test_lengths(queries, keys, is_causal, rng):
    q, k, v = make(rng, (1, 2), queries, keys)
    got = fy.entmax_attention(q, k, v, is_causal=is_causal)
    assert_same(got, composed(q, k, v, is_causal=is_causal), (q, k, v))


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("keys", [1000, 5000])
def test_one_query_against_a_long_cache(alpha, keys, rng):
    q, k, v = make(rng, (2, 4), 1, keys, 16, 16)
    got = fy.entmax_attention(q, k, v, alpha=alpha)
    assert_same(got, composed(q, k, v, alpha), (q, k, v))


@pytest.mark.parametrize(
    ("lead", "queries", "d_value"), [((0, 2), 3, 4), ((2, 0), 3, 4), ((2, 2), 0, 4), ((2, 2), 3, 0)]
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_empty(lead, queries, d_value, is_causal, rng):
    q, k, v = make(rng, lead, queries, 9, 5, d_value)
    got = fy.entmax_attention(q, k, v, is_causal=is_causal)
    assert got.shape == (*lead, queries, d_value)
    assert got.dtype == q.dtype
    assert all((g == 0).all() for g in gradients(got, (q, k, v)))
    with torch.no_grad():
        assert fy.entmax_attention(q, k, v).shape == got.shape
    alpha = torch.full((lead[-1],), 1.5)
    assert fy.entmax_attention(q, k, v, alpha=alpha).shape == got.shape


# -- masks, NaN, layouts -----------------------------------------------------


@alphas
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_may_look_nowhere(alpha, kind, rng):
    q, k, v = make(rng)
    mask = torch.ones(7, 9, dtype=torch.bool)
    mask[2] = False
    if kind == "float":
        mask = torch.zeros(7, 9, dtype=torch.float64).masked_fill(~mask, -math.inf)
    learned = torch.full((3,), alpha, dtype=torch.float64, requires_grad=True)
    got = fy.entmax_attention(q, k, v, mask, alpha=learned)
    assert (got[..., 2, :] == 0).all()
    for grad in torch.autograd.grad(got[..., 2, :].sum(), (q, k, v, learned), retain_graph=True):
        assert (grad == 0).all()
    (grad,) = torch.autograd.grad(got.sum(), q)
    assert (grad[..., 2, :] == 0).all()
    none = torch.zeros(7, 9, dtype=torch.bool)
    assert (fy.entmax_attention(q, k, v, none, alpha=alpha) == 0).all()


@alphas
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_query_spoils_only_itself(alpha, bad, rng):
    q, k, v = make(rng)
    with torch.no_grad():
        wanted = fy.entmax_attention(q, k, v, alpha=alpha)
        q[1, 2, 3] = bad
        got = fy.entmax_attention(q, k, v, alpha=alpha)
    spoilt = torch.zeros(2, 3, 7, dtype=torch.bool)
    spoilt[1, 2, 3] = True
    assert got[spoilt].isnan().all()
    assert torch.equal(got[~spoilt], wanted[~spoilt])
    learning = fy.entmax_attention(q, k, v, alpha=alpha)
    assert torch.equal(learning[~spoilt], wanted[~spoilt])


def test_bad_keys_of_the_future_do_no_harm(rng):
    q, k, v = make(rng, queries=9)
    wanted = fy.entmax_attention(q, k, v, is_causal=True)
    with torch.no_grad():
        k[:, :, 6:] = math.nan
    got = fy.entmax_attention(q, k, v, is_causal=True)
    assert torch.equal(got[:, :, :6], wanted[:, :, :6])
    assert got[:, :, 6:].isnan().all()
    mask = torch.arange(9) < 6
    got = fy.entmax_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(got, fy.entmax_attention(q, k[:, :, :6], v[:, :, :6]))


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_layouts(alpha, rng):
    plain = make(rng, (2, 3), 7, 9)
    turned = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in plain]
    mixed = [x.detach().movedim(-1, 0).contiguous().movedim(0, -1) for x in plain]
    wide = [torch.cat([x.detach(), x.detach()], -1)[..., : x.shape[-1]] for x in plain]
    mask = randn(9, 7, rng=rng).t()
    wanted = composed(*plain, alpha, mask)
    for given in (turned, mixed, wide):
        given = [x.requires_grad_() for x in given]
        assert not any(x.is_contiguous() for x in given)
        got = fy.entmax_attention(*given, mask, alpha=alpha)
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(
            gradients(got, given), gradients(wanted, plain), atol=1e-12, rtol=1e-12
        )


def test_an_upstream_gradient_that_is_expanded_or_turned(rng):
    q, k, v = make(rng)
    got, wanted = fy.entmax_attention(q, k, v), composed(q, k, v)
    for upstream in (
        torch.ones((), dtype=torch.float64).expand(got.shape),
        randn(2, 3, 4, 7, rng=rng).mT,
    ):
        mine = torch.autograd.grad(got, (q, k, v), upstream, retain_graph=True)
        theirs = torch.autograd.grad(wanted, (q, k, v), upstream, retain_graph=True)
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("needed", range(1, 8))
def test_gradients_of_some_inputs_only(needed, rng):
    given = [x if needed >> i & 1 else x.detach() for i, x in enumerate(make(rng))]
    inputs = [x for x in given if x.requires_grad]
    assert_same(fy.entmax_attention(*given), composed(*given), inputs)
