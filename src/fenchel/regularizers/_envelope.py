r"""The envelope theorem as a torch function.

A maximum over :math:`p`, :math:`v(\theta) = \max_p f(\theta, p)`, has the gradient
:math:`\partial_\theta f` at the maximiser (Danskin): the maximiser itself need not be
differentiated. For a second derivative it must be, and :math:`\partial_\theta f` then carries the
graph of the maximiser along.

Inside a compiled ``torch.func`` transform, which cannot see the jvp of a Function, the same is said
in plain torch ops, as an integral along a step that is 0 and carries the derivatives:

.. math:: v(\theta_0 + s) = v(\theta_0) + \int_0^1 \langle \nabla v(\theta_0 + t s), s \rangle dt

A rule that is exact for polynomials in t of degree k − 1 has the first k derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, is_transformed
from fenchel._expansion import derivative_order, step_from

if TYPE_CHECKING:
    from fenchel.regularizers._base import Regularizer

#: The derivatives of a value in scores and in its parameter, if it has one.
Slopes = tuple[Tensor, Tensor | None]


def envelope(
    value: Tensor,
    scores: Tensor,
    residual: Tensor,
    parameter: Tensor | None = None,
    slope: Tensor | None = None,
    middle: Callable[[], Slopes] | None = None,
) -> Tensor:
    """``value``, made a function of ``scores`` with the gradient ``residual``.

    Args:
        value: one number a row, shape (*rows), without a graph.
        scores: shape (*rows, n).
        residual: the derivative of value in scores, with its own graph.
        parameter: broadcasts to (*rows, 1).
        slope: the derivative of value in parameter, shape (*rows, 1), with its own graph.
        middle: residual and slope half-way between scores as a constant and scores, and so for the
            parameter: for third derivatives inside torch.compile.
    """
    if torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return _integrated(value, scores, (residual, slope), parameter, middle)
    if torch.compiler.is_compiling():
        return _Envelope.apply(value, scores, residual, parameter, slope)
    if not is_transformed():
        wanted = scores.requires_grad or (parameter is not None and parameter.requires_grad)
        if not (wanted and torch.is_grad_enabled()):
            return value
    return _TransformableEnvelope.apply(value, scores, residual, parameter, slope)


def _integrated(
    value: Tensor,
    scores: Tensor,
    end: Slopes,
    parameter: Tensor | None,
    middle: Callable[[], Slopes] | None,
) -> Tensor:
    """``value`` plus the integral: by the trapezoidal rule, or Simpson's for more derivatives."""
    order = derivative_order()
    value = value.detach()  # it may have seen the parameter
    _, step = step_from(scores)
    drift = None if parameter is None else parameter - parameter.detach()

    def along(slopes: Slopes) -> Tensor:
        residual, slope = slopes
        moved = (residual * step).sum(-1)
        if slope is not None and drift is not None:
            moved = moved + (slope * drift).squeeze(-1)
        return moved.to(value.dtype)

    residual, slope = end
    start = residual.detach(), None if slope is None else slope.detach()
    if order <= 2:
        return value + (along(start) + along(end)) / 2
    if order > 4 or middle is None:
        raise FenchelError(
            f"Fenchel-Young losses: expected at most {1 if middle is None else 3} nested "
            f"derivatives inside torch.compile, but got {order - 1}; call the loss outside of "
            "torch.compile."
        )
    return value + (along(start) + 4 * along(middle()) + along(end)) / 6


class _Envelope(torch.autograd.Function):
    @staticmethod
    def forward(
        value: Tensor,
        scores: Tensor,
        residual: Tensor,
        parameter: Tensor | None,
        slope: Tensor | None,
    ) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, _, residual, parameter, slope = inputs
        ctx.shape = None if parameter is None else parameter.shape
        saved = (residual,) if slope is None else (residual, slope)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        residual, *slopes = ctx.saved_tensors
        grad = grad.unsqueeze(-1)
        for_scores = grad * residual if ctx.needs_input_grad[1] else None
        for_parameter = None
        if slopes and ctx.needs_input_grad[3]:
            for_parameter = (grad * slopes[0]).sum_to_size(ctx.shape)
        return None, for_scores, None, for_parameter, None


class _TransformableEnvelope(_Envelope):
    # Apart, because torch.compile traces only a Function that has no jvp and no vmap of its own.
    @staticmethod
    def jvp(ctx: Any, _: Any, scores: Any, __: Any, parameter: Any, ___: Any) -> Tensor:
        residual, *slopes = ctx.saved_tensors
        tangent = torch.zeros_like(residual[..., 0])
        if scores is not None:
            tangent = (residual * scores).sum(-1)
        if slopes and parameter is not None:
            tangent = tangent + (slopes[0] * parameter).squeeze(-1)
        return tangent

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Tensor | None) -> tuple[Tensor, int]:
        residual, at = inputs[2], in_dims[2]
        assert residual is not None
        rank = residual.dim() - (at is not None)
        batched: list[Tensor | None] = []
        for position, (x, at) in enumerate(zip(inputs, in_dims, strict=True)):
            if x is None:
                batched.append(None)
                continue
            wanted = rank - 1 if position == 0 else rank
            x = x.unsqueeze(0) if at is None else x.movedim(at, 0)
            x = x.reshape(x.shape[:1] + (1,) * (wanted + 1 - x.dim()) + tuple(x.shape[1:]))
            batched.append(x.expand(info.batch_size, *x.shape[1:]))
        return _TransformableEnvelope.apply(*batched), 0


def envelope_of(
    omega: Regularizer, value: Tensor, scores: Tensor, p: Tensor, target: Tensor | None = None
) -> Tensor:
    """``value`` as a function of the scores and of the parameter of Ω, if it has one.

    Args:
        omega: for rows along the last axis.
        value: the conjugate at the scores, or the loss of the target, shape (*rows), no graph.
        scores: shape (*rows, n).
        p: the regularized argmax of the scores, with its graph.
        target: probabilities (*rows, n) for a loss; None for the conjugate.
    """

    def slopes(omega: Regularizer, p: Tensor) -> Slopes:
        residual = p if target is None else p - target
        if omega._parameter is None:
            return residual, None
        own = omega.slope_rows(p)
        return residual, -own if target is None else omega.slope_rows(target) - own

    def middle() -> Slopes:
        half, at = _halfway(omega, scores)
        return slopes(half, half.predict_rows(at))

    residual, slope = slopes(omega, p)
    return envelope(value.to(scores.dtype), scores, residual, omega._parameter, slope, middle)


def _halfway(omega: Regularizer, scores: Tensor) -> tuple[Regularizer, Tensor]:
    """Ω and scores, equal to what they are, with half of the derivatives: see ``envelope``."""
    known, step = step_from(scores)
    if omega._parameter is None:
        return omega, known + 0.5 * step
    fixed, drift = step_from(omega._parameter)
    half = type(omega)(fixed + 0.5 * drift)  # type: ignore[call-arg]
    return half.among(known), known + 0.5 * step
