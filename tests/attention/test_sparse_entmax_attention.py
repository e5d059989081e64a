"""The weights of attention as lists."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from tests.regularizers.cases import randn

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_output_and_weights(lead, causal, rng):
    q, k, v = (randn(*lead, n, 4, rng=rng) for n in (5, 7, 7))
    out, weights = fy.sparse_entmax_attention(q, k, v, is_causal=causal)
    assert torch.equal(out, fy.entmax_attention(q, k, v, is_causal=causal))
    scores = q @ k.transpose(-1, -2) / 2
    if causal:
        seen = torch.ones(5, 7, dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    assert weights.sizes.shape == (*lead, 5)
    torch.testing.assert_close(weights.to_dense(), fy.entmax15(scores), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(weights.to_dense() @ v, out, atol=1e-12, rtol=1e-12)


def test_heads_masks_and_groups(rng):
    q, k, v = randn(2, 4, 5, 6, rng=rng), randn(2, 2, 7, 6, rng=rng), randn(2, 2, 7, 3, rng=rng)
    alpha = torch.tensor([1.2, 1.5, 1.8, 2.0])
    mask = torch.rand(2, 1, 5, 7, generator=rng) > 0.5
    mask[0, 0, 2] = False  # a query that may look nowhere
    out, weights = fy.sparse_entmax_attention(q, k, v, mask, alpha=alpha, enable_gqa=True)
    torch.testing.assert_close(
        out,
        fy.entmax_attention(q, k, v, mask, alpha=alpha, enable_gqa=True),
        atol=1e-14,
        rtol=1e-14,
    )
    dense = weights.to_dense()
    assert (dense[~mask.expand_as(dense)] == 0).all()
    assert (weights.sizes[0, :, 2] == 0).all()
    assert (out[0, :, 2] == 0).all()


def test_no_gradient_and_half(rng):
    q = randn(2, 3, 4, rng=rng).requires_grad_()
    out, weights = fy.sparse_entmax_attention(q, q, q)
    assert not out.requires_grad
    assert not weights.values.requires_grad
    half = q.detach().bfloat16()
    out, weights = fy.sparse_entmax_attention(half, half, half)
    assert out.dtype == weights.values.dtype == torch.bfloat16


def test_errors_name_the_function():
    with pytest.raises(fy.FenchelError, match=r"^sparse_entmax_attention: expected `query`"):
        fy.sparse_entmax_attention([1.0], torch.zeros(2, 2), torch.zeros(2, 2))
