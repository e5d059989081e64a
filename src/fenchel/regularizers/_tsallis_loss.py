"""The loss of entmax by a kernel of its own: it keeps the nonzeros of p - y, nothing of size n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._dtypes import Parameter
from fenchel._targets import one_hot
from fenchel.kernels import IGNORED
from fenchel.maps import entmax
from fenchel.regularizers.tsallis_curve import slope


def fused_loss(scores: Tensor, target: Tensor, alpha: Parameter) -> Tensor | None:
    """Losses of rows along the last axis; those of class ``IGNORED`` have none.

    None where no backend has a kernel for these tensors, or they are not plain ones.
    """
    if not kernels.is_plain(scores, target, alpha):
        return None
    kernel = kernels.kernel_for("entmax.loss", scores)
    if kernel is None:
        return None
    learned = isinstance(alpha, Tensor) and alpha.requires_grad
    if torch.is_grad_enabled() and (scores.requires_grad or learned):
        loss: Tensor = _FusedLoss.apply(scores, target, alpha, kernel)
    else:
        loss = kernels.find("entmax.loss_value", scores)(scores, alpha, target)
    return loss


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, target: Tensor, alpha: Parameter, kernel: Callable[..., Any]
    ) -> Tensor:
        with_slope = isinstance(alpha, Tensor) and ctx.needs_input_grad[2]
        loss: Tensor
        loss, slope, starts, indices, values = kernel(scores, alpha, target, with_slope)
        ctx.number = None if isinstance(alpha, Tensor) else alpha
        optional = [x for x in (slope, alpha) if isinstance(x, Tensor)]
        ctx.with_slope = with_slope
        # The scores cost no memory, being alive already: they are for a second derivative.
        ctx.save_for_backward(scores, target, starts, indices, values, *optional)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, target, starts, indices, values, *optional = ctx.saved_tensors
        alpha = optional[-1] if ctx.number is None else ctx.number
        if torch.is_grad_enabled() or not kernels.is_plain(grad):
            return *_differentiable_gradients(grad, scores, target, alpha, ctx.with_slope), None
        for_scores = for_alpha = None
        if ctx.needs_input_grad[0]:
            to_dense = kernels.find("lists.to_dense", grad)
            for_scores = to_dense(grad, starts, indices, values, scores.shape[-1])
        if ctx.with_slope:
            for_alpha = (grad.unsqueeze(-1) * optional[0]).sum_to_size(alpha.shape)
        return for_scores, None, for_alpha, None


def _differentiable_gradients(
    grad: Tensor, scores: Tensor, target: Tensor, alpha: Parameter, with_slope: bool
) -> tuple[Tensor, None, Tensor | None]:
    """The gradients as functions of scores and alpha: a second derivative may follow."""
    ignored = (target == IGNORED).unsqueeze(-1)
    p = entmax(scores.masked_fill(ignored, 0.0), alpha=alpha)
    residual = (p - one_hot(target, p)).masked_fill(ignored, 0.0)
    for_alpha = None
    if with_slope and isinstance(alpha, Tensor):
        change = slope(p, alpha).masked_fill(ignored, 0.0)
        for_alpha = -(grad.unsqueeze(-1) * change).sum_to_size(alpha.shape)
    return grad.unsqueeze(-1) * residual, None, for_alpha
