"""As ``F.scaled_dot_product_attention``: shapes that broadcast, flags of tracers, padding."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy

SHAPES = [
    ((4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 3)),
    ((5, 3), (2, 4, 6, 3), (2, 4, 6, 3)),
    ((2, 4, 5, 3), (6, 3), (6, 3)),
    ((2, 1, 5, 3), (2, 4, 6, 3), (1, 4, 6, 3)),
    ((2, 4, 5, 3), (2, 1, 6, 3), (2, 1, 6, 3)),
    ((7, 1, 4, 5, 3), (2, 4, 6, 3), (7, 2, 1, 6, 3)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_leading_dimensions_broadcast(shapes, alpha, backend, rng):
    inputs = [torch.randn(s, generator=rng, dtype=torch.float64).requires_grad_() for s in shapes]
    got = fy.entmax_attention(*inputs, alpha=alpha)
    lead = torch.broadcast_shapes(*(s[:-2] for s in shapes))
    full = [x.expand(*lead, *x.shape[-2:]).contiguous() for x in inputs]
    wanted = fy.entmax_attention(*full, alpha=alpha)
    if alpha == 1:
        wanted = F.scaled_dot_product_attention(*full)
    torch.testing.assert_close(got, wanted)
    grads = torch.autograd.grad(got.square().sum(), inputs)
    torch.testing.assert_close(grads, torch.autograd.grad(wanted.square().sum(), inputs))


def test_batches_broadcast_with_fewer_heads_of_keys(backend, rng):
    q = torch.randn(2, 4, 5, 3, generator=rng)
    k = torch.randn(1, 2, 6, 3, generator=rng)
    got = fy.entmax_attention(q, k, k, enable_gqa=True)
    wide = k.expand(2, 2, 6, 3).repeat_interleave(2, 1)
    torch.testing.assert_close(got, fy.entmax_attention(q, wide, wide))


@pytest.mark.parametrize("added", [False, True], ids=["boolean", "added"])
@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_padding_may_hold_anything(added, garbage, backend, rng):
    """Keys and values that no query may look at, in the output and in every gradient."""
    q, k, v = (
        torch.randn(2, 4, 5, 3, generator=rng, dtype=torch.float64).requires_grad_()
        for _ in range(3)
    )
    mask = (torch.arange(5) < 3).expand(2, 1, 5, 5)
    if added:
        mask = torch.zeros(2, 1, 5, 5, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    wanted = fy.entmax_attention(q, k, v, mask)
    expected = torch.autograd.grad(wanted.square().sum(), (q, k, v))
    dirty = [x.detach().clone() for x in (k, v)]
    for x in dirty:
        x[:, :, 3:] = garbage
    inputs = [q, *(x.requires_grad_() for x in dirty)]
    got = fy.entmax_attention(*inputs, mask)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.autograd.grad(got.square().sum(), inputs), expected)


def test_flags_of_a_traced_model():
    """Under torch.jit.trace a comparison of sizes is a tensor."""
    q = torch.randn(1, 2, 4, 3)

    def f(q):
        return fy.entmax_attention(q, q, q, enable_gqa=torch.tensor(False) & (q.shape[1] > 7))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer says that the flag becomes a constant
        traced = torch.jit.trace(f, (q,))
    other = torch.randn(1, 2, 4, 3)
    torch.testing.assert_close(traced(other), f(other))
