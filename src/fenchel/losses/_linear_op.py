"""The output layer with its loss as torch ops: known to autograd and to torch.compile.

They check what they are given as the public function does: a saved graph, a pass of a compiler or a
user may call them with anything.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import FenchelError
from fenchel.kernels import Lists
from fenchel.losses import _linear_engine as engine
from fenchel.losses._linear_shapes import check_layer

_NAME = "linear_entmax_loss"
_Forward = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("fenchel::linear_entmax_loss", mutates_args=())
def linear_entmax_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    keep: bool,
    with_slope: bool,
    sparse_grad: bool,
) -> _Forward:
    """Losses (rows), slopes in alpha, starts, indices and values of p - y, and dense chunks.

    ``hidden`` is (rows, d), ``alpha`` (1,) or (rows,).
    """
    _check(hidden, weight, bias, target, alpha)
    if target.device.type == "cpu":
        kernels.check_classes(_NAME, target, weight.shape[0])
    wide = alpha.detach().double()
    loss, slope, lists, dense = engine.forward(
        hidden, weight, bias, target, wide, keep, with_slope, not sparse_grad
    )
    return loss, slope, *lists, dense


@linear_entmax_loss.register_fake
def _(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    keep: bool,
    with_slope: bool,
    sparse_grad: bool,
) -> _Forward:
    _check(hidden, weight, bias, target, alpha)
    nnz = torch.library.get_ctx().new_dynamic_size()
    rows = hidden.shape[0]
    wide = torch.float32 if hidden.dtype.itemsize == 2 else hidden.dtype
    chunks = -(-rows // engine.chunk_size(rows))
    return (
        hidden.new_empty(rows, dtype=wide),
        hidden.new_empty(rows if with_slope and keep else 0, dtype=torch.float64),
        hidden.new_empty(rows + 1, dtype=torch.int64),
        hidden.new_empty(nnz, dtype=torch.int32),
        hidden.new_empty(nnz, dtype=wide),
        torch.empty(chunks, dtype=torch.bool),
    )


def _check(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, alpha: Tensor
) -> None:
    """Check all arguments by their metadata."""
    if hidden.dim() != 2:
        raise FenchelError(f"{_NAME}: expected `hidden` of shape (rows, d), not {hidden.shape}.")
    check_layer(_NAME, hidden, weight, bias)
    rows = hidden.shape[:1]
    if target.dtype != torch.int64 or target.shape != rows or target.device != hidden.device:
        raise FenchelError(
            f"{_NAME}: expected `target` to be int64 of shape {tuple(rows)} on {hidden.device}, "
            f"but got {target.dtype} of shape {tuple(target.shape)} on {target.device}."
        )
    if not alpha.is_floating_point() or (alpha.numel() != 1 and alpha.shape != rows):
        raise FenchelError(
            f"{_NAME}: expected `alpha` to be floating, of shape (1,) or {tuple(rows)}, but got "
            f"{alpha.dtype} of shape {tuple(alpha.shape)}."
        )


@torch.library.custom_op("fenchel::linear_entmax_loss_backward", mutates_args=())
def _dense_gradients(
    grad: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    starts: Tensor,
    indices: Tensor,
    values: Tensor,
    dense: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_backward(grad, hidden, weight, bias, target, alpha, starts, indices, values, dense)
    lists = Lists(starts, indices, values)
    if target.device.type == "cpu":
        kernels.check_classes(_NAME, target, weight.shape[0])
        kernels.check_lists(_NAME, *lists, hidden.shape[0], weight.shape[0])
    wide = alpha.detach().double()
    return engine.backward(grad, hidden, weight, bias, target, wide, lists, dense)


def _check_backward(
    grad: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    starts: Tensor,
    indices: Tensor,
    values: Tensor,
    dense: Tensor,
) -> None:
    _check(hidden, weight, bias, target, alpha)
    rows = hidden.shape[0]
    kernels.check_list_shapes(_NAME, starts, indices, values, rows)
    wide = torch.float32 if hidden.dtype.itemsize == 2 else hidden.dtype
    chunks = -(-rows // engine.chunk_size(rows))
    fits = (
        grad.shape == hidden.shape[:1]
        and grad.dtype in (wide, hidden.dtype)
        and values.dtype == wide
        and dense.dtype == torch.bool
        and tuple(dense.shape) == (chunks,)
    )
    if not fits:
        raise FenchelError(
            f"{_NAME}: expected {rows} gradients and {chunks} flags of chunks, and values of "
            f"{wide}, but got {tuple(grad.shape)} {grad.dtype}, {tuple(dense.shape)} "
            f"{dense.dtype} and {values.dtype}."
        )


@_dense_gradients.register_fake
def _(grad: Tensor, hidden: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    _check_backward(grad, hidden, weight, *rest)
    bias = weight.new_empty(weight.shape[0], dtype=torch.float64)
    return hidden.new_empty(hidden.shape), weight.new_empty(weight.shape), bias


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Forward) -> None:
    hidden, weight, bias, target, alpha, _, _, ctx.sparse_grad = inputs
    _, slope, *rest = output
    ctx.has_bias = bias is not None
    tensors = (hidden, weight, target, alpha, slope, *rest)
    ctx.save_for_backward(*tensors, *((bias,) if bias is not None else ()))


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    hidden, weight, target, alpha, slope, starts, indices, values, dense, *rest = ctx.saved_tensors
    bias = rest[0] if ctx.has_bias else None
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise FenchelError(
            "linear_entmax_loss: expected no second derivative; use "
            "`fy.entmax_loss(F.linear(hidden, weight), target)` for create_graph=True."
        )
    lists = Lists(starts, indices, values)
    if ctx.sparse_grad:
        for_hidden, named, rows, for_bias = engine.sparse_backward(grad, hidden, weight, lists)
        for_weight = torch.sparse_coo_tensor(
            named[None], rows, weight.shape, check_invariants=False, is_coalesced=True
        )
    else:
        for_hidden, for_weight, for_bias = _dense_gradients(
            grad, hidden, weight, bias, target, alpha, starts, indices, values, dense
        )
    for_alpha = None
    if ctx.needs_input_grad[4]:
        for_alpha = (grad.double() * slope).sum_to_size(alpha.shape).to(alpha.dtype)
    wanted = ctx.needs_input_grad
    return (
        for_hidden if wanted[0] else None,
        for_weight if wanted[1] else None,
        for_bias.to(bias.dtype) if bias is not None and wanted[2] else None,
        None,
        for_alpha,
        None,
        None,
        None,
    )


def _refuse_vmap(*_: Any) -> None:
    raise FenchelError(
        "linear_entmax_loss: expected no torch.func.vmap, because supports differ in size; give "
        "the batch as dimensions of `hidden`."
    )


linear_entmax_loss.register_autograd(_backward, setup_context=_save)
linear_entmax_loss.register_vmap(_refuse_vmap)
