"""Smoothed maxima over structures with autograd: value, mean, and derivatives of every order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel.structures.problem import refuse_unreadable


def smoothed_max(
    kind: str, scores: Tensor, layout: tuple[int, ...], sizes: Tensor, omega: str, gamma: float
) -> Tensor:
    """The smoothed maxima (instances) over the structures of a kind."""
    if not (scores.requires_grad and torch.is_grad_enabled()):
        return kernels.smoothed(kind, scores, layout, sizes, omega, gamma, False)[0]
    value: Tensor = _Max.apply(scores, sizes, (kind, layout, omega, gamma))
    return value


def smoothed_argmax(
    kind: str, scores: Tensor, layout: tuple[int, ...], sizes: Tensor, omega: str, gamma: float
) -> tuple[Tensor, Tensor]:
    """Their gradients (instances, parts), and the values without a graph."""
    means, values = _Argmax.apply(scores, sizes, (kind, layout, omega, gamma))
    return means, values


class _Max(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, sizes: Tensor, rest: tuple[Any, ...]) -> Tensor:
        kind, layout, omega, gamma = ctx.rest = rest
        # The gradient will be asked for, and shares the forward pass with the value.
        values, means = kernels.smoothed(kind, scores, layout, sizes, omega, gamma, True)
        ctx.save_for_backward(scores, means, sizes)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        refuse_unreadable(grad)
        scores, means, sizes = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative: the means depend on the scores
            means, _ = _Argmax.apply(scores, sizes, ctx.rest)
        return grad.unsqueeze(1) * means, None, None


class _Argmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, sizes: Tensor, rest: tuple[Any, ...]
    ) -> tuple[Tensor, Tensor]:
        kind, layout, omega, gamma = ctx.rest = rest
        values, means = kernels.smoothed(kind, scores, layout, sizes, omega, gamma, True)
        assert means is not None
        ctx.save_for_backward(scores, sizes)
        ctx.mark_non_differentiable(values)
        return means, values

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        refuse_unreadable(grad)
        scores, sizes = ctx.saved_tensors
        kind, layout, omega, gamma = ctx.rest
        turned = kernels.smoothed_product(
            kind, scores, grad, layout, sizes, omega, gamma, with_graph=torch.is_grad_enabled()
        )
        return turned, None, None
