"""Inputs for `fy.linear_entmax_loss`, and its definition: the loss of `F.linear`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

import fenchel as fy
from tests.regularizers.cases import randn

ALPHAS = [0.5, 1.0, 1.3, 1.5, 2.0, 3.0, math.inf]


def make(rows, classes, d, rng, dtype=torch.float64, scale=1.0, ignored=None):
    """Hidden states, weight, bias (leaves) and class indices."""
    lead = (rows,) if isinstance(rows, int) else rows
    hidden = randn(*lead, d, rng=rng, dtype=dtype, scale=scale).requires_grad_()
    weight = randn(classes, d, rng=rng, dtype=dtype).requires_grad_()
    bias = randn(classes, rng=rng, dtype=dtype).requires_grad_()
    target = torch.randint(0, classes, lead, generator=rng)
    if ignored is not None:
        target.view(-1)[1::3] = ignored
    return hidden, weight, bias, target


def composed(hidden, weight, target, alpha=1.5, *, bias=None, class_weight=None, **kwargs):
    """The definition."""
    scores = F.linear(hidden, weight, bias)
    return fy.entmax_loss(scores, target, alpha, dim=-1, weight=class_weight, **kwargs)


def gradients(loss: Tensor, inputs) -> list[Tensor]:
    """Of a weighted sum, so that no row's gradient is like another's."""
    upstream = torch.linspace(0.5, 2, max(1, loss.numel()), dtype=loss.dtype)[: loss.numel()]
    return list(torch.autograd.grad(loss, inputs, upstream.view_as(loss)))


def assert_same(hidden, weight, target, alpha=1.5, *, inputs, tolerance=1e-10, **kwargs):
    """Value and gradients of the function and of its definition."""
    got = fy.linear_entmax_loss(hidden, weight, target, alpha, **kwargs)
    wanted = composed(hidden, weight, target, alpha, **kwargs)
    assert got.dtype == wanted.dtype
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)
    pairs = zip(gradients(got, inputs), gradients(wanted, inputs), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, atol=tolerance, rtol=tolerance)
