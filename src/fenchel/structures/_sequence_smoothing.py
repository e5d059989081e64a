"""Smoothed maxima over sequences with autograd: value, gradient, Hessian products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel.kernels import reference
from fenchel.structures._problem import refuse_unreadable


def smoothed_max(scores: Tensor, omega: str, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The smoothed maxima (instances), with temperature 1."""
    if not (scores.requires_grad and torch.is_grad_enabled()):
        return kernels.sequence_smoothed(omega, scores, layout, sizes, with_means=False)[0]
    value: Tensor = _Max.apply(scores, omega, layout, sizes)
    return value


def smoothed_argmax(
    scores: Tensor, omega: str, layout: tuple[int, ...], sizes: Tensor
) -> tuple[Tensor, Tensor]:
    """Their gradients (instances, parts), and the values without a graph."""
    means, values = _Argmax.apply(scores, omega, layout, sizes)
    return means, values


class _Max(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, omega: str, layout: tuple[int, ...], sizes: Tensor
    ) -> Tensor:
        # The gradient will be asked for, and shares the forward pass with the value.
        values, means = kernels.sequence_smoothed(omega, scores, layout, sizes)
        ctx.save_for_backward(scores, means, sizes)
        ctx.omega, ctx.layout = omega, layout
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        refuse_unreadable(grad)
        scores, means, sizes = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative: the means depend on the scores
            means, _ = _Argmax.apply(scores, ctx.omega, ctx.layout, sizes)
        return grad.unsqueeze(1) * means, None, None, None


class _Argmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, omega: str, layout: tuple[int, ...], sizes: Tensor
    ) -> tuple[Tensor, Tensor]:
        values, means = kernels.sequence_smoothed(omega, scores, layout, sizes)
        assert means is not None
        ctx.save_for_backward(scores, sizes)
        ctx.omega, ctx.layout = omega, layout
        ctx.mark_non_differentiable(values)
        return means, values

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        refuse_unreadable(grad)
        scores, sizes = ctx.saved_tensors
        if torch.is_grad_enabled():  # a third derivative: plain torch can go on
            turned = reference.sequence_product(ctx.omega, scores, grad, ctx.layout, sizes)
        else:
            turned = kernels.sequence_product(ctx.omega, scores, grad, ctx.layout, sizes)
        return turned, None, None, None
