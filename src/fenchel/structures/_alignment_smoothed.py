"""The smoothed maximum over alignments and its gradient, with derivatives of every order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel.kernels import reference
from fenchel.structures._problem import refuse_unreadable


class SmoothedMax(torch.autograd.Function):
    """Flat scores (instances, parts) to smoothed maxima (instances)."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, layout: tuple[int, ...], sizes: Tensor, omega: str, gamma: float
    ) -> Tensor:
        values, means = kernels.alignment_smoothed(
            scores, layout, sizes, omega, gamma, with_gradient=ctx.needs_input_grad[0]
        )
        ctx.save_for_backward(scores, sizes, means)
        ctx.rest = layout, omega, gamma
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_unreadable(grad)
        scores, sizes, means = ctx.saved_tensors
        layout, omega, gamma = ctx.rest
        if torch.is_grad_enabled():  # a second derivative is wanted
            means = SmoothedArgmax.apply(scores, layout, sizes, omega, gamma)
        return grad.unsqueeze(1) * means, None, None, None, None


class SmoothedArgmax(torch.autograd.Function):
    """Flat scores (instances, parts) to expected alignments of the same shape."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, layout: tuple[int, ...], sizes: Tensor, omega: str, gamma: float
    ) -> Tensor:
        _, means = kernels.alignment_smoothed(
            scores, layout, sizes, omega, gamma, with_gradient=True
        )
        assert means is not None
        ctx.save_for_backward(scores, sizes)
        ctx.rest = layout, omega, gamma
        return means

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_unreadable(grad)
        scores, sizes = ctx.saved_tensors
        layout, omega, gamma = ctx.rest
        arguments = scores, grad, layout, sizes, omega, gamma
        if torch.is_grad_enabled():  # a further derivative is wanted
            product = reference.alignment_product(*arguments)
        else:
            product = kernels.alignment_product(*arguments)
        return product, None, None, None, None
