"""Entmax attention by a kernel of its own as a torch op: it keeps the nonzeros of the weights.

The ops take (batch, heads, length, width) in float32 or float64. They check what they are given as
the public function does: a saved graph, a pass of a compiler or a user may call them with anything.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import FenchelError, check_wide
from fenchel.attention.dense import dense_attention
from fenchel.kernels import Lists


def check_operands(name: str, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Check dtypes, devices and shapes of queries, keys and values."""
    for label, x in (("query", query), ("key", key), ("value", value)):
        check_wide(name, **{label: x})
        if x.dim() != 4 or x.dtype != query.dtype or x.device != query.device:
            raise FenchelError(
                f"{name}: expected `{label}` of shape (batch, heads, length, width), of the dtype "
                f"and on the device of `query`, but got {tuple(x.shape)}, {x.dtype} on {x.device}."
            )
        if x.layout != torch.strided:
            raise FenchelError(f"{name}: expected dense `{label}`, but got layout {x.layout}.")
    batch, heads, _, width = query.shape
    kv_heads, length = key.shape[1], key.shape[2]
    fits = (
        key.shape[0] == value.shape[0] == batch
        and value.shape[1] == kv_heads > 0
        and heads % kv_heads == 0
        and key.shape[3] == width > 0
        and value.shape[2] == length > 0
    )
    if not fits:
        raise FenchelError(
            f"{name}: expected `query` (batch, heads, L, d), `key` (batch, kv_heads, S, d) and "
            f"`value` (batch, kv_heads, S, d_v), heads a multiple of kv_heads, d and S at least 1, "
            f"but got {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )


def check_alpha(name: str, alpha: Tensor, query: Tensor) -> None:
    """Check that there is one alpha, or one per head of each batch entry."""
    fits = alpha.numel() == 1 or tuple(alpha.shape) == tuple(query.shape[:2])
    if not alpha.is_floating_point() or not fits or alpha.device != query.device:
        raise FenchelError(
            f"{name}: expected `alpha` to be floating, of shape (1,) or {tuple(query.shape[:2])}, "
            f"on {query.device}, but got {alpha.dtype} of shape {tuple(alpha.shape)} on "
            f"{alpha.device}."
        )


def expand_mask(name: str, mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """A boolean mask, or one of the dtype of the queries, as (batch, heads, L, S)."""
    if mask is None:
        return None
    if mask.dtype not in (torch.bool, query.dtype) or mask.device != query.device:
        raise FenchelError(
            f"{name}: expected `mask` to be boolean or {query.dtype} on {query.device}, but got "
            f"{mask.dtype} on {mask.device}."
        )
    shape = (*query.shape[:3], key.shape[2])
    try:
        return mask.expand(shape)
    except RuntimeError:
        raise FenchelError(
            f"{name}: expected `mask` broadcastable to {shape}, but got {tuple(mask.shape)}."
        ) from None


_NAME = "entmax_attention"
_Forward = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("fenchel::entmax_attention", mutates_args=())
def attention_op(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> _Forward:
    """Output, starts, indices and values of the weights, and what dropout multiplies them by.

    Queries, keys and values are (batch, heads, length, width), alpha (1,) or (batch, heads).
    """
    mask = _check(query, key, value, mask, alpha, dropout_p)
    wide = alpha.detach().double().contiguous()
    factor = query.new_empty(0)
    attend = kernels.any_kernel("attention", query)
    if dropout_p == 0:
        out, weights = attend(query, key, value, mask, wide, is_causal, scale)
        assert out is not None
        return out, weights.starts, weights.indices, weights.values, factor
    _, weights = attend(query, key, value, mask, wide, is_causal, scale, False)
    survives = torch.rand_like(weights.values) >= dropout_p
    factor = survives.to(query.dtype) * (1 / (1 - dropout_p) if dropout_p < 1 else 0.0)
    dropped = Lists(weights.starts, weights.indices, weights.values * factor)
    out = kernels.any_kernel("attention.of_weights", query)(query, key, value, dropped)
    return out, weights.starts, weights.indices, weights.values, factor


@attention_op.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> _Forward:
    _check(query, key, value, mask, alpha, dropout_p)
    nnz = torch.library.get_ctx().new_dynamic_size()
    batch, heads, queries, _ = query.shape
    return (
        query.new_empty(batch, heads, queries, value.shape[3]),
        query.new_empty(batch * heads * queries + 1, dtype=torch.int64),
        query.new_empty(nnz, dtype=torch.int32),
        query.new_empty(nnz),
        query.new_empty(nnz if dropout_p > 0 else 0),
    )


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    dropout_p: float,
) -> Tensor | None:
    """Check all arguments by their metadata; the mask comes back expanded."""
    check_operands(_NAME, query, key, value)
    check_alpha(_NAME, alpha, query)
    if not 0 <= dropout_p <= 1:
        raise FenchelError(f"{_NAME}: `dropout_p` must be in [0, 1]; got {dropout_p!r}.")
    return expand_mask(_NAME, mask, query, key)


@torch.library.custom_op("fenchel::entmax_attention_backward", mutates_args=())
def _gradients(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    scale: float,
    starts: Tensor,
    indices: Tensor,
    values: Tensor,
    factor: Tensor,
    with_alpha: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients in query, key, value, the listed scores, and alpha (one a row, if wanted)."""
    _check_backward(grad, query, key, value, alpha, starts, indices, values, factor)
    rows = query.shape[0] * query.shape[1] * query.shape[2]
    kernels.check_lists(_NAME, starts, indices, values, rows, key.shape[2])
    if factor.shape != values.shape and tuple(factor.shape) != (0,):
        raise FenchelError(
            f"{_NAME}: expected no factor of dropout or one per weight, but got "
            f"{tuple(factor.shape)} for {tuple(values.shape)}."
        )
    *gradients, for_alpha = kernels.any_kernel("attention.backward", query)(
        query,
        key,
        value,
        grad,
        alpha,
        scale,
        Lists(starts, indices, values),
        factor if factor.numel() else None,
        with_alpha,
    )
    empty = grad.new_empty(0, dtype=torch.float64)
    return *gradients, empty if for_alpha is None else for_alpha


@_gradients.register_fake
def _(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    scale: float,
    starts: Tensor,
    indices: Tensor,
    values: Tensor,
    factor: Tensor,
    with_alpha: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    _check_backward(grad, query, key, value, alpha, starts, indices, values, factor)
    rows = query.shape[:3] if with_alpha else (0,)
    gradients = (x.new_empty(x.shape) for x in (query, key, value, values))
    return *gradients, grad.new_empty(rows, dtype=torch.float64)  # type: ignore[return-value]


def _check_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    starts: Tensor,
    indices: Tensor,
    values: Tensor,
    factor: Tensor,
) -> None:
    check_operands(_NAME, query, key, value)
    check_alpha(_NAME, alpha, query)
    rows = query.shape[0] * query.shape[1] * query.shape[2]
    kernels.check_list_shapes(_NAME, starts, indices, values, rows)
    expected = (*query.shape[:3], value.shape[3])
    same = grad.dtype == values.dtype == factor.dtype == query.dtype
    if tuple(grad.shape) != expected or not same or grad.device != query.device:
        raise FenchelError(
            f"{_NAME}: expected the gradient of the output to be {query.dtype} of shape "
            f"{expected}, and weights of that dtype, but got {grad.dtype} of shape "
            f"{tuple(grad.shape)} and {values.dtype}."
        )


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Forward) -> None:
    query, key, value, mask, alpha, ctx.dropout_p, ctx.is_causal, ctx.scale = inputs
    ctx.has_mask = mask is not None
    saved = (query, key, value, alpha, *output[1:])
    ctx.save_for_backward(*saved, *((mask,) if mask is not None else ()))


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    query, key, value, alpha, starts, indices, values, factor, *rest = ctx.saved_tensors
    mask = rest[0] if ctx.has_mask else None
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return _twice_differentiable(ctx, grad, query, key, value, mask, alpha)
    learned = ctx.needs_input_grad[4]
    for_query, for_key, for_value, for_scores, for_rows = _gradients(
        grad, query, key, value, alpha, ctx.scale, starts, indices, values, factor, learned
    )
    for_alpha = None
    if learned:
        for_heads = for_rows.sum(-1)
        for_alpha = (
            for_heads.sum_to_size(alpha.shape) if alpha.dim() == 2 else for_heads.sum()[None]
        )
        for_alpha = for_alpha.to(alpha.dtype)
    for_mask = None
    if mask is not None and ctx.needs_input_grad[3]:
        for_mask = _gradient_of_mask(query, key, mask, starts, indices, for_scores)
    return for_query, for_key, for_value, for_mask, for_alpha, None, None, None


def _gradient_of_mask(
    query: Tensor, key: Tensor, mask: Tensor, starts: Tensor, indices: Tensor, scores: Tensor
) -> Tensor:
    """The listed gradients in the scores, laid out and summed to the mask's own shape."""
    dense = scores.new_zeros(starts.shape[0] - 1, key.shape[2])
    total = scores.shape[0]  # len() would ask torch.compile for a number
    row = torch.arange(dense.shape[0]).repeat_interleave(starts.diff(), output_size=total)
    dense.index_put_((row, indices.long()), scores)
    return dense.reshape(*query.shape[:3], key.shape[2]).sum_to_size(mask.shape)


def _twice_differentiable(
    ctx: Any,
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
) -> tuple[Tensor | None, ...]:
    if ctx.dropout_p > 0:
        raise FenchelError("entmax_attention: expected no second derivative with dropout.")
    inputs = (query, key, value, mask, alpha)
    pairs = zip(inputs, ctx.needs_input_grad, strict=False)
    wanted = [x for x, needed in pairs if needed and x is not None]
    out = dense_attention(query, key, value, mask, alpha, 0.0, ctx.is_causal, ctx.scale)
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True))
    return (
        *(next(found) if needed else None for needed in ctx.needs_input_grad[:5]),
        None,
        None,
        None,
    )


def _refuse_vmap(*_: Any) -> None:
    raise FenchelError(
        "entmax_attention: expected no torch.func.vmap of the registered op; call "
        "`fy.entmax_attention`."
    )


attention_op.register_autograd(_backward, setup_context=_save)
attention_op.register_vmap(_refuse_vmap)
