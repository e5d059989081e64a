r"""Label smoothing of a sharded output layer, from two numbers a row and rank.

As in one process (:mod:`fenchel.losses._linear_smoothing`), against :math:`q = (1 - s) e_y + s u`

.. math:: L(\theta; q) = L(\theta; e_y) + \Omega(q) + s \theta_y - s \langle \theta, u \rangle,

and the last two terms are sums over the shards.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel.kernels import IGNORED
from fenchel.losses._linear_smoothing import _omega, _scores
from fenchel.losses._vocab_wire import Wire
from fenchel.regularizers.tsallis_curve import LARGE


def smoothing_term(
    wire: Wire,
    losses: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    own: Tensor,
    alpha: Tensor,
    smoothing: float,
) -> Tensor:
    """The losses against smoothed targets, from those against the classes."""
    dtype = losses.dtype
    ignored = target == IGNORED
    hidden = _Everywhere.apply(hidden.masked_fill(ignored[:, None], 0.0), wire)  # it may be NaN
    is_open = torch.ones(weight.shape[0], dtype=torch.bool, device=weight.device)
    if bias is not None:
        is_open = bias != -torch.inf
    classes = int(wire.sums(is_open.sum()))
    spread = is_open.to(dtype) / max(1, classes)
    if weight.shape[0] == 0:
        # Zeros that depend on hidden: the other ranks wait for this one in the backward pass.
        terms = hidden[:, :0].sum(1, dtype=dtype) + weight.sum(dtype=dtype)
    else:
        score, mean = _scores(hidden, weight, bias, own.clamp(min=0), spread)
        terms = smoothing * (torch.where(own >= 0, score, 0.0) - mean)
    # The shares of the classes are alike: which one is the target's makes no difference.
    even = torch.full((max(1, classes),), 1 / max(1, classes), dtype=dtype, device=weight.device)
    on_class, on_spread = torch.full_like(losses, 1 - smoothing), torch.full_like(losses, smoothing)
    exponent = alpha.to(dtype).clamp(max=LARGE)
    entropy = _omega(on_class, on_spread, even, torch.zeros_like(target), exponent)
    value = losses + entropy + _Total.apply(terms, wire)
    value = torch.where(value < 0, value - value.detach(), value)  # rounding
    return value.masked_fill(ignored, 0.0)


class _Everywhere(torch.autograd.Function):
    """What all ranks have; each uses it for its own classes, so its gradients are added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Wire) -> Tensor:
        ctx.wire = wire
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        wide = grad.float() if grad.dtype.itemsize == 2 else grad.clone()
        return ctx.wire.total(wide).to(grad.dtype), None


class _Total(torch.autograd.Function):
    """A sum over the ranks, of which all make the same use: the gradient of each is its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Wire) -> Tensor:
        return wire.sums(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
