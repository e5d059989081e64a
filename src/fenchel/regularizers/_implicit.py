"""A solver's answer as a torch function: differentiated by its optimality conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, refuse_forward_over_forward
from fenchel._graphs import outside_graphs
from fenchel.solvers.kkt import jacobian_product
from fenchel.solvers.row_function import RowFunction


def implicit_argmax(
    scores: Tensor, omega: RowFunction, solve: Callable[[Tensor], Tensor], strongly_convex: bool
) -> Tensor:
    """``solve(scores)``, differentiable as the regularized argmax that it is.

    Nothing is unrolled: the steps of the solver do not matter, only where they end.

    Args:
        scores: float64, shape (*rows, n).
        omega: Ω, with as many derivatives as are asked for, and one more.
        solve: scores to p, both (*rows, n), not differentiable.
        strongly_convex: False if the Hessian of Ω may be singular.
    """
    if torch._C._are_functorch_transforms_active():
        refuse_forward_over_forward("Regularizer.from_function")
    return _ImplicitArgmax.apply(scores, omega, solve, strongly_convex)


class _ImplicitArgmax(torch.autograd.Function):
    @staticmethod
    def forward(
        scores: Tensor,
        omega: RowFunction,
        solve: Callable[[Tensor], Tensor],
        strongly_convex: bool,
    ) -> Tensor:
        return solve(scores.detach())  # forward mode would follow the steps

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.omega, _, ctx.strongly_convex = inputs
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    @outside_graphs  # what a transform has saved is nothing that a graph could take in
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _times_jacobian(ctx, grad), None, None, None

    @staticmethod
    @outside_graphs  # what a transform has saved is nothing that a graph could take in
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _times_jacobian(ctx, tangent)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], scores: Tensor, *others: Any
    ) -> tuple[Tensor, int]:
        return _ImplicitArgmax.apply(scores.movedim(in_dims[0], 0), *others), 0


def _times_jacobian(ctx: Any, vector: Tensor) -> Tensor:
    """J v at the answer, which as an output carries its own graph: so J can be differentiated."""
    (p,) = ctx.saved_tensors
    n = p.shape[-1]
    rows = p.reshape(-1, n)
    x, regular = jacobian_product(
        ctx.omega, rows, rows.detach() > 0, vector.reshape(-1, n), ctx.strongly_convex
    )
    if not torch._C._are_functorch_transforms_active() and not bool(regular.all()):
        raise FenchelError(
            "Regularizer.from_function: the Hessian of the function is singular, or not finite, "
            "where the gradient is asked for; add a little curvature, such as "
            "1e-3 * (p * p).sum(-1), or pass "
            "`strongly_convex=False` for one element of the generalized Jacobian."
        )
    return torch.where(p.isnan(), math.nan, x.reshape(p.shape))
