"""From a forward kernel to a torch function: autograd, forward mode, vmap, compile, export.

A :class:`Family` is a map with one parameter per row (entmax, normmax, budget). Its maths is stated
once, from the output, in plain torch: the Jacobian times a vector (these Jacobians are symmetric,
so that is the vector-Jacobian product too) and the derivative in the parameter. Everything else
is the same for all families and stands here.

Which door a call takes:

- no gradient wanted: straight to the kernel;
- gradient wanted: one ``autograd.Function``, whose backward is a fused pass of a backend that has
  one and the family's formulas otherwise (and whenever a second derivative may follow);
- ``torch.func`` transforms and forward mode: the same Function;
- ``torch.compile``, ``torch.export`` and tracing modes: the registered op ``fenchel::<name>``
  where a backend has a kernel; else the reference's torch ops, which fuse, where these are few;
- ``torch.func`` inside ``torch.compile``: an expansion in plain torch ops, see ``_expansion``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fenchel import kernels
from fenchel._checks import (
    FenchelError,
    check_parameter_tensor,
    check_scores,
    check_wide,
    refuse_forward_over_forward,
)
from fenchel._dtypes import Parameter
from fenchel._expansion import derivative_order, expand, step_from

JacobianProduct = Callable[[Tensor, Parameter, Tensor, int], Tensor]
ParameterDerivative = Callable[[Tensor, Parameter, int], Tensor] | None


class RowMap(Protocol):
    """What computes a map: a :class:`Family`, or the groups of ``_groups``."""

    #: The name of the forward kernel, and of the registered op.
    op: str

    def __call__(self, scores: Tensor, parameter: Parameter, dim: int) -> Tensor:
        """The map of float32 or float64 scores along ``dim``."""


class Family:
    """A row-wise map ``scores, parameter -> p`` along ``dim``, known to torch in every mode.

    Args:
        op: name of the forward kernel, and of the registered op.
        jacobian_product: ``(p, parameter, vector, dim)`` to the Jacobian at output ``p`` times
            ``vector``.
        parameter_derivative: ``(p, parameter, dim)`` to dp / dparameter, entry by entry; None for
            a parameter that is a number and never a tensor.
        fuses: whether, for a given parameter, the reference is a short enough chain of torch ops
            for a compiler to unroll; otherwise a compiled graph calls it as one op.
    """

    def __init__(
        self,
        op: str,
        jacobian_product: JacobianProduct,
        parameter_derivative: ParameterDerivative,
        fuses: Callable[[Parameter], bool],
    ) -> None:
        self.op = op
        self.jacobian_product = jacobian_product
        self.parameter_derivative = parameter_derivative
        self.fuses = fuses
        self.registered = _registered_op(op, jacobian_product, parameter_derivative)
        self.compiled_function, self.function = _autograd_functions(
            op, jacobian_product, parameter_derivative
        )
        # Function.apply binds the arguments by their signature first, which takes longer than the
        # kernel on a small input; the base class has the same apply without it.
        self.bare_apply = super(torch.autograd.Function, self.function).apply  # type: ignore[misc]

    def __call__(self, scores: Tensor, parameter: Parameter, dim: int) -> Tensor:
        """The map, for float32 or float64 ``scores``, through the cheapest door that serves."""
        if torch.compiler.is_compiling():
            if torch._C._are_functorch_transforms_active():
                return self._expanded(scores, parameter, dim)
            if kernels.kernel_for(self.op, scores) is not None or not self.fuses(parameter):
                return self.registered(scores, as_tensor(parameter, scores), dim)
            return self.compiled_function.apply(scores, parameter, dim)
        if torch._C._are_functorch_transforms_active():
            refuse_forward_over_forward(self.op)
            return self.function.apply(scores, parameter, dim)
        if not kernels.in_eager_mode(scores, parameter):
            kernels.find(self.op, scores)  # a backend asked for by name still has its say
            return self.registered(scores, as_tensor(parameter, scores), dim)
        wants_grad = torch.is_grad_enabled() and (
            scores.requires_grad or (isinstance(parameter, Tensor) and parameter.requires_grad)
        )
        if wants_grad or forward_ad._current_level >= 0:
            return self.bare_apply(scores, parameter, dim)
        return kernels.run(self.op, scores, parameter, dim)

    def _expanded(self, scores: Tensor, parameter: Parameter, dim: int) -> Tensor:
        """The map in torch ops that have its derivatives, for torch.func inside torch.compile."""
        known, step = step_from(scores)
        fixed = as_tensor(parameter, scores).detach()
        p = self.registered(known, fixed, dim).detach()
        if not isinstance(parameter, Tensor) or self.parameter_derivative is None:
            number = fixed if isinstance(parameter, Tensor) else parameter
            return expand(
                self.op,
                p,
                lambda p, _: self.jacobian_product(p, number, step, dim),
                derivative_order(),
            )
        derivative, drift = self.parameter_derivative, parameter - fixed

        def flow(p: Tensor, t: float) -> Tensor:
            at = fixed + t * drift
            moved = self.jacobian_product(p, at, step, dim) + derivative(p, at, dim) * drift
            return moved.to(p.dtype)

        return expand(self.op, p, flow, derivative_order())


def _gradients(
    op: str,
    jacobian_product: JacobianProduct,
    parameter_derivative: ParameterDerivative,
    p: Tensor,
    parameter: Parameter,
    grad: Tensor,
    dim: int,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None, None]:
    """Gradients in the scores and in the parameter (as ``wanted``) from the one in ``p``."""
    for_scores, for_parameter = wanted
    grad_scores = grad_rows = None
    if for_parameter and parameter_derivative is None:
        raise FenchelError(f"{op}: its parameter has no gradient; expected a number or a constant.")
    kernel = fused_backward(f"{op}.backward", p, grad)
    if kernel is not None:
        grad_scores, grad_rows = kernel(p, grad, parameter, dim, for_parameter)
    else:
        if for_scores:
            grad_scores = jacobian_product(p, parameter, grad, dim)
        if for_parameter and parameter_derivative is not None:
            drift = parameter_derivative(p, parameter, dim)
            grad_rows = (drift * grad).sum(dim, keepdim=True)
    if grad_rows is not None and isinstance(parameter, Tensor):
        grad_rows = grad_rows.sum_to_size(parameter.shape).to(parameter.dtype)
    return grad_scores, grad_rows, None


def fused_backward(op: str, p: Tensor, grad: Tensor) -> Callable[..., Any] | None:
    """The backward pass of a backend, if these are plain tensors and no derivative can follow."""
    if torch.is_grad_enabled() or not kernels.is_plain(p, grad) or grad.dtype != p.dtype:
        return None
    return kernels.kernel_for(op, p)


def _autograd_functions(
    op: str, jacobian_product: JacobianProduct, parameter_derivative: ParameterDerivative
) -> tuple[type[torch.autograd.Function], type[torch.autograd.Function]]:
    """The map as an ``autograd.Function``, plain and for ``torch.func`` and forward mode.

    Two, because torch.compile traces only a Function that has no jvp and no vmap of its own.
    """

    class MapFunction(torch.autograd.Function):
        @staticmethod
        def forward(scores: Tensor, parameter: Parameter, dim: int) -> Tensor:
            return kernels.run(op, scores, parameter, dim)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            _, parameter, ctx.dim = inputs
            saved = (output, parameter) if isinstance(parameter, Tensor) else (output,)
            ctx.number = None if isinstance(parameter, Tensor) else parameter
            ctx.save_for_backward(*saved)
            ctx.save_for_forward(*saved)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            p, parameter = _saved(ctx)
            wanted = ctx.needs_input_grad[:2]
            return _gradients(
                op, jacobian_product, parameter_derivative, p, parameter, grad, ctx.dim, wanted
            )

    class TransformableFunction(MapFunction):
        @staticmethod
        def jvp(
            ctx: Any, scores_tangent: Tensor | None, parameter_tangent: Tensor | None, _: None
        ) -> Tensor:
            p, parameter = _saved(ctx)
            tangent = torch.zeros_like(p)
            if scores_tangent is not None:
                tangent = jacobian_product(p, parameter, scores_tangent, ctx.dim)
            if parameter_tangent is not None and parameter_derivative is not None:
                drift = parameter_derivative(p, parameter, ctx.dim)
                tangent = tangent + drift * parameter_tangent
            return tangent.to(p.dtype)

        @staticmethod
        def vmap(
            info: Any, in_dims: tuple[Any, ...], scores: Tensor, parameter: Parameter, dim: int
        ) -> tuple[Tensor, int]:
            scores, parameter = batch_in_front(info, in_dims, scores, parameter)
            return TransformableFunction.apply(scores, parameter, dim + 1), 0

    return MapFunction, TransformableFunction


def _registered_op(
    op: str, jacobian_product: JacobianProduct, parameter_derivative: ParameterDerivative
) -> Any:
    """The map as ``fenchel::<op>``, which compiled and exported graphs hold."""

    @torch.library.custom_op(
        f"fenchel::{op}",
        mutates_args=(),
        schema="(Tensor scores, Tensor parameter, int dim) -> Tensor",
    )
    def run(scores: Tensor, parameter: Tensor, dim: int) -> Tensor:
        dim = check(scores, parameter, dim)
        return kernels.run(op, scores, parameter, dim)

    @run.register_fake
    def shape(scores: Tensor, parameter: Tensor, dim: int) -> Tensor:
        check(scores, parameter, dim)
        return torch.empty_like(scores, memory_format=torch.contiguous_format)

    def check(scores: Tensor, parameter: Tensor, dim: int) -> int:
        dim = check_scores(op, scores, dim)
        check_wide(op, scores=scores)
        check_parameter_tensor(op, "parameter", parameter, scores, dim)
        return dim

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        scores, parameter, dim = inputs
        ctx.dim = dim % scores.dim()
        ctx.save_for_backward(output, parameter)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        p, parameter = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        return _gradients(
            op, jacobian_product, parameter_derivative, p, parameter, grad, ctx.dim, wanted
        )

    def vmap(info: Any, in_dims: Any, scores: Tensor, parameter: Tensor, dim: int) -> Any:
        rank = scores.dim() - (in_dims[0] is not None)
        batched = batch_in_front(info, in_dims, scores, parameter)
        return run(*batched, dim % rank + 1), 0

    run.register_autograd(backward, setup_context=save)
    run.register_vmap(vmap)
    return run


def as_tensor(parameter: Parameter, scores: Tensor) -> Tensor:
    if isinstance(parameter, Tensor):
        return parameter
    return torch.full((), parameter, dtype=torch.float64, device=scores.device)


def _saved(ctx: Any) -> tuple[Tensor, Parameter]:
    if ctx.number is None:
        return ctx.saved_tensors
    return ctx.saved_tensors[0], ctx.number


def batch_in_front(
    info: Any, in_dims: tuple[Any, ...], scores: Tensor, parameter: Parameter
) -> tuple[Tensor, Parameter]:
    """Scores and parameter with vmap's axis first, broadcasting as they did without it."""
    scores_at, parameter_at, _ = in_dims
    if scores_at is None:
        scores = scores.expand(info.batch_size, *scores.shape)
    else:
        scores = scores.movedim(scores_at, 0)
    if parameter_at is not None and isinstance(parameter, Tensor):
        parameter = parameter.movedim(parameter_at, 0)
        missing = scores.dim() - parameter.dim()
        parameter = parameter.reshape(
            parameter.shape[:1] + (1,) * missing + tuple(parameter.shape[1:])
        )
    return scores, parameter
