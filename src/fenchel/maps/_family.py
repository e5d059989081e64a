"""From a forward kernel to a torch function: autograd, forward mode, vmap, compile, export.

A :class:`Family` is a map with one parameter a row (entmax, normmax, budget). It states its maths
once, from the output, in plain torch: the Jacobian times a vector (these Jacobians are symmetric,
so that is the vector-Jacobian product too) and the derivative in the parameter. Everything else
is the same for all families and stands here.

Which door a call takes:

- no gradient wanted: straight to the kernel;
- gradient wanted: one ``autograd.Function``, whose backward is a fused native pass on the CPU and
  the family's formulas otherwise (and whenever a second derivative may follow);
- ``torch.func`` transforms and forward mode: the same Function;
- ``torch.compile``, ``torch.export`` and tracing modes: the registered op ``fenchel::<name>`` on
  the native backend, the reference's torch ops, which fuse, on others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fenchel import kernels
from fenchel.kernels import _native

Parameter = float | Tensor


class Family(torch.autograd.Function):
    """A row-wise map ``scores, parameter -> p`` along ``dim``, known to torch in every mode.

    A subclass sets ``op``, the name of its kernel, and states the two derivatives.
    """

    op: ClassVar[str]

    jacobian_product: ClassVar[Callable[[Tensor, Parameter, Tensor, int], Tensor]]
    """``(p, parameter, vector, dim)``: the Jacobian at output ``p`` times ``vector``."""

    parameter_derivative: ClassVar[Callable[[Tensor, Parameter, int], Tensor]]
    """``(p, parameter, dim)``: dp / dparameter, entry by entry."""

    @classmethod
    def call(cls, scores: Tensor, parameter: Parameter, dim: int) -> Tensor:
        """The map itself, for float32 or float64 ``scores``, through the cheapest door that serves."""
        if torch.compiler.is_compiling():
            if kernels.choose_backend(scores) == "native":
                return cls._registered(scores, parameter, dim)
            return cls.apply(scores, parameter, dim)
        if torch._C._are_functorch_transforms_active():
            return cls.apply(scores, parameter, dim)
        if torch._C._len_torch_dispatch_stack() > 0 or type(scores) not in _PLAIN:
            return cls._registered(scores, parameter, dim)
        wants_grad = torch.is_grad_enabled() and (
            scores.requires_grad or (isinstance(parameter, Tensor) and parameter.requires_grad)
        )
        if wants_grad or forward_ad._current_level >= 0:
            # Function.apply would bind the arguments by their signature first, which takes longer
            # than the kernel on a small input; the base class has the same apply without it.
            return _bare_apply(cls)(scores, parameter, dim)
        return kernels.run(cls.op, scores, parameter, dim)

    @classmethod
    def _registered(cls, scores: Tensor, parameter: Parameter, dim: int) -> Tensor:
        if not isinstance(parameter, Tensor):
            parameter = torch.full((), parameter, dtype=torch.float64, device=scores.device)
        return getattr(torch.ops.fenchel, cls.op)(scores, parameter, dim)

    # -- autograd.Function ---------------------------------------------------------------------

    @classmethod
    def forward(cls, scores: Tensor, parameter: Parameter, dim: int) -> Tensor:  # type: ignore[override]
        return kernels.run(cls.op, scores, parameter, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, parameter, dim = inputs
        ctx.dim = dim
        if isinstance(parameter, Tensor):
            ctx.number = None
            ctx.save_for_backward(output, parameter)
            ctx.save_for_forward(output, parameter)
        else:
            ctx.number = parameter
            ctx.save_for_backward(output)
            ctx.save_for_forward(output)
        ctx.set_materialize_grads(False)

    @classmethod
    def backward(cls, ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if grad is None:
            return None, None, None
        p, parameter = _saved(ctx)
        for_scores, for_parameter = ctx.needs_input_grad[:2]
        return *cls.gradients(p, parameter, grad, ctx.dim, for_scores, for_parameter), None

    @classmethod
    def jvp(  # type: ignore[override]
        cls, ctx: Any, scores_tangent: Tensor | None, parameter_tangent: Tensor | None, _: None
    ) -> Tensor:
        p, parameter = _saved(ctx)
        tangent = None
        if scores_tangent is not None:
            tangent = cls.jacobian_product(p, parameter, scores_tangent, ctx.dim)
        if parameter_tangent is not None:
            drift = cls.parameter_derivative(p, parameter, ctx.dim) * parameter_tangent
            tangent = drift if tangent is None else tangent + drift
        return torch.zeros_like(p) if tangent is None else tangent.to(p.dtype)

    @classmethod
    def vmap(  # type: ignore[override]
        cls, info: Any, in_dims: tuple[Any, ...], scores: Tensor, parameter: Parameter, dim: int
    ) -> tuple[Tensor, int]:
        return cls.apply(*_batch_in_front(info, in_dims, scores, parameter), dim + 1), 0

    # -- the first-order backward ----------------------------------------------------------------

    @classmethod
    def gradients(
        cls,
        p: Tensor,
        parameter: Parameter,
        grad: Tensor,
        dim: int,
        for_scores: bool,
        for_parameter: bool,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Gradients in the scores and in the parameter, given the gradient in p."""
        if _may_run_native(p, grad):
            grad_scores, grad_rows = _native.backward(
                cls.op, p, grad, parameter, dim, for_parameter
            )
        else:
            grad_scores = cls.jacobian_product(p, parameter, grad, dim) if for_scores else None
            grad_rows = None
            if for_parameter:
                drift = cls.parameter_derivative(p, parameter, dim)
                grad_rows = (drift * grad).sum(dim, keepdim=True)
        if grad_rows is not None and isinstance(parameter, Tensor):
            grad_rows = grad_rows.sum_to_size(parameter.shape).to(parameter.dtype)
        return grad_scores, grad_rows


_PLAIN = (Tensor, torch.nn.Parameter)


def _bare_apply(cls: type[Family]) -> Any:
    return super(torch.autograd.Function, cls).apply


def _saved(ctx: Any) -> tuple[Tensor, Parameter]:
    if ctx.number is None:
        return ctx.saved_tensors
    return ctx.saved_tensors[0], ctx.number


def _batch_in_front(
    info: Any, in_dims: tuple[Any, ...], scores: Tensor, parameter: Parameter
) -> tuple[Tensor, Parameter]:
    """Scores and parameter with vmap's axis first, so that they broadcast as they did without it."""
    scores_at, parameter_at, _ = in_dims
    if scores_at is None:
        scores = scores.expand(info.batch_size, *scores.shape)
    else:
        scores = scores.movedim(scores_at, 0)
    if parameter_at is not None:
        assert isinstance(parameter, Tensor)
        parameter = parameter.movedim(parameter_at, 0)
        missing = scores.dim() - parameter.dim()
        parameter = parameter.reshape(
            parameter.shape[:1] + (1,) * missing + tuple(parameter.shape[1:])
        )
    return scores, parameter


def _may_run_native(p: Tensor, grad: Tensor) -> bool:
    """Whether the native backward serves: plain CPU tensors and no second derivative asked for."""
    return (
        not torch.compiler.is_compiling()
        and not torch.is_grad_enabled()
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
        and type(p) in _PLAIN
        and type(grad) in _PLAIN
        and grad.dtype == p.dtype
        and kernels.choose_backend(p) == "native"
    )


def register(family: type[Family]) -> type[Family]:
    """Register ``fenchel::<op>``, which compiled and exported graphs hold instead of the loop."""

    def forward(scores: Tensor, parameter: Tensor, dim: int) -> Tensor:
        return kernels.run(family.op, scores, parameter, dim)

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, parameter, ctx.dim = inputs
        ctx.save_for_backward(output, parameter)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        p, parameter = ctx.saved_tensors
        for_scores, for_parameter = ctx.needs_input_grad[:2]
        return *family.gradients(p, parameter, grad, ctx.dim, for_scores, for_parameter), None

    def vmap(info: Any, in_dims: Any, scores: Tensor, parameter: Tensor, dim: int) -> Any:
        return op(*_batch_in_front(info, in_dims, scores, parameter), dim + 1), 0

    op = torch.library.custom_op(
        f"fenchel::{family.op}",
        forward,
        mutates_args=(),
        schema="(Tensor scores, Tensor parameter, int dim) -> Tensor",
    )
    op.register_fake(lambda scores, parameter, dim: torch.empty_like(scores.contiguous()))
    op.register_autograd(backward, setup_context=save)
    op.register_vmap(vmap)
    return family
