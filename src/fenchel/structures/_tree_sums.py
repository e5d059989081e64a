"""The log-partition of dependency trees and its gradient, with gradients of every order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel.structures._problem import refuse_unreadable


class TreeLogPartition(torch.autograd.Function):
    """(instances, parts) to (instances); the gradient is :class:`TreeMarginals`."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, projective: bool, layout: tuple[int, ...], sizes: Tensor
    ) -> Tensor:
        ctx.projective, ctx.layout = projective, layout
        if not ctx.needs_input_grad[0]:
            return kernels.tree_log_partition(projective, scores, layout, sizes)
        value, mean = kernels.tree_sums(projective, scores, layout, sizes)
        ctx.save_for_backward(scores, sizes, mean)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_unreadable(grad)
        scores, sizes, mean = ctx.saved_tensors
        if torch.is_grad_enabled():  # the marginals again, with a graph
            mean = TreeMarginals.apply(scores, ctx.projective, ctx.layout, sizes)
        return grad.unsqueeze(1) * mean, None, None, None


class TreeMarginals(torch.autograd.Function):
    """(instances, parts) to (instances, parts); its derivative is symmetric."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, projective: bool, layout: tuple[int, ...], sizes: Tensor
    ) -> Tensor:
        ctx.save_for_backward(scores, sizes)
        ctx.projective, ctx.layout = projective, layout
        return kernels.tree_marginals(projective, scores, layout, sizes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_unreadable(grad)
        scores, sizes = ctx.saved_tensors
        if not torch.is_grad_enabled():
            slope = kernels.tree_marginals(ctx.projective, scores, ctx.layout, sizes, grad)
            return slope, None, None, None
        # A graph of the derivative is wanted: torch ops have one, of every order.
        known = scores if scores.requires_grad else scores.detach().requires_grad_()
        value = kernels.tree_log_partition_ops(ctx.projective, known, ctx.layout, sizes)
        (mean,) = torch.autograd.grad(value.sum(), known, create_graph=True)
        (slope,) = torch.autograd.grad(mean, known, grad, create_graph=True)
        return slope, None, None, None
