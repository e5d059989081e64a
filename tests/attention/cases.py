"""Inputs for `fy.entmax_attention`, and its definition with dense weights."""

from __future__ import annotations

import math

import torch

import fenchel as fy
from tests.regularizers.cases import randn

ALPHAS = [0.5, 1.0, 1.3, 1.5, 2.0, 3.0, math.inf]


def make(rng, lead=(2, 3), queries=7, keys=9, d=5, d_value=4, dtype=torch.float64, scale=2.0):
    """Query, key and value: leaves."""
    query = randn(*lead, queries, d, rng=rng, dtype=dtype, scale=scale)
    key = randn(*lead, keys, d, rng=rng, dtype=dtype)
    value = randn(*lead, keys, d_value, rng=rng, dtype=dtype)
    return tuple(x.requires_grad_() for x in (query, key, value))


def weights_of(query, key, alpha=1.5, attn_mask=None, is_causal=False, scale=None):
    """Dense weights; alpha broadcasts against (..., 1, 1)."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * scale
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return fy.entmax(scores, alpha)


def composed(query, key, value, alpha=1.5, attn_mask=None, enable_gqa=False, **kwargs):
    """The definition."""
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(group, -3), value.repeat_interleave(group, -3)
    if isinstance(alpha, torch.Tensor) and alpha.dim() == 1 < alpha.numel():
        alpha = alpha[:, None, None]
    return weights_of(query, key, alpha, attn_mask, **kwargs) @ value


def gradients(out, inputs, retain_graph=True):
    """Of a weighted sum, in which every entry has a weight of its own."""
    upstream = torch.linspace(-1, 2, max(out.numel(), 1), dtype=out.dtype)[: out.numel()].sin()
    return torch.autograd.grad(out, inputs, upstream.view_as(out), retain_graph=retain_graph)


def assert_same(got, wanted, inputs, tolerance=1e-10, retain_graph=True):
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)
    found = (gradients(out, inputs, retain_graph) for out in (got, wanted))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, atol=tolerance, rtol=tolerance)
