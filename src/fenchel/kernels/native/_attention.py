"""Entmax attention on the C++ core. Tensors are (batch, heads, length, width), contiguous."""

from __future__ import annotations

from ctypes import byref, c_double, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels._lists import Lists
from fenchel.kernels._table import implements
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, Strided, empty, readable
from fenchel.kernels.native._entmax import take
from fenchel.kernels.native._numbers import ADDED_MASK, BYTE_MASK, NO_MASK, SHAPE
from fenchel.kernels.native._rows import SUFFIX

_SHAPE = torch.int64
_ALPHA = [c_double, torch.float64, c_int64]  # scale, alpha, its stride
_LISTS = [torch.int64, torch.int32]  # starts, indices; their values follow
_forward = {
    t: NativeFunction(
        f"attention_forward_{suffix}",
        [t, t, t, Strided, _SHAPE, *_ALPHA, t, torch.int64, torch.int64, c_void_p],
    )
    for t, suffix in SUFFIX.items()
}
_backward = {
    t: NativeFunction(
        f"attention_backward_{suffix}",
        [t, t, t, t, _SHAPE, *_ALPHA, *_LISTS, t, t, t, t, t, t, torch.float64],
    )
    for t, suffix in SUFFIX.items()
}
_output = {
    t: NativeFunction(f"attention_output_{suffix}", [t, _SHAPE, *_LISTS, t, t])
    for t, suffix in SUFFIX.items()
}


@implements("attention", NATIVE)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    causal: bool,
    scale: float,
    with_output: bool = True,
) -> tuple[Tensor | None, Lists]:
    """Output and weights. ``alpha`` has the shape (batch, heads) or (1,)."""
    out = _empty_output(query, value) if with_output else None
    rows = query.shape[0] * query.shape[1] * query.shape[2]
    sizes = empty((rows,), torch.int64)
    starts = empty((rows + 1,), torch.int64)
    handle = c_void_p()
    _run(query, key, value, mask, alpha, causal, scale, out, sizes, starts, handle)
    indices, values = take(handle, int(starts[-1]), query.dtype, torch.int32)
    return out, Lists(starts, indices, values)


@implements("attention.output", NATIVE)
def attention_output(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    causal: bool,
    scale: float,
) -> Tensor:
    """The output alone."""
    out = _empty_output(query, value)
    _run(query, key, value, mask, alpha, causal, scale, out, None, None, None)
    return out


@implements("attention.of_weights", NATIVE)
def output_of_weights(query: Tensor, key: Tensor, value: Tensor, weights: Lists) -> Tensor:
    """Listed weights times the values."""
    out = _empty_output(query, value)
    _output[query.dtype](
        readable(value),
        _shape(query, key, value, None, False),
        weights.starts,
        weights.indices,
        weights.values,
        out,
    )
    return out


@implements("attention.backward", NATIVE)
def attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad: Tensor,
    alpha: Tensor,
    scale: float,
    weights: Lists,
    factor: Tensor | None,
    with_alpha: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients in query, key, value, in the listed scores, and in alpha (one per row)."""
    query, key, value, grad = (readable(x) for x in (query, key, value, grad))
    grad_query, grad_key, grad_value = (torch.empty_like(x) for x in (query, key, value))
    grad_scores = torch.empty_like(weights.values)
    grad_alpha = empty(query.shape[:3], torch.float64) if with_alpha else None
    _backward[query.dtype](
        query,
        key,
        value,
        grad,
        _shape(query, key, value, None, False),
        scale,
        readable(alpha.detach(), torch.float64),
        int(alpha.numel() > 1),
        weights.starts,
        weights.indices,
        weights.values,
        factor,
        grad_scores,
        grad_query,
        grad_key,
        grad_value,
        grad_alpha,
    )
    return grad_query, grad_key, grad_value, grad_scores, grad_alpha


def _run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    causal: bool,
    scale: float,
    out: Tensor | None,
    sizes: Tensor | None,
    starts: Tensor | None,
    handle: c_void_p | None,
) -> None:
    if mask is not None:  # its strides stay: a broadcast mask must not become as large as scores
        mask = mask.resolve_neg()
    _forward[query.dtype](
        query,
        key,
        value,
        mask,
        _shape(query, key, value, mask, causal),
        scale,
        readable(alpha.detach(), torch.float64),
        int(alpha.numel() > 1),
        out,
        sizes,
        starts,
        None if handle is None else byref(handle),
    )


def _shape(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Any:
    """The core's ``shape``; ``mask`` is expanded to (batch, heads, queries, keys)."""
    batch, heads, queries, d = query.shape
    kind = NO_MASK if mask is None else BYTE_MASK if mask.dtype == torch.bool else ADDED_MASK
    strides = (0, 0, 0, 0) if mask is None else mask.stride()
    numbers = (batch, heads, key.shape[1], queries, key.shape[2], d, value.shape[3], int(causal))
    return byref((c_int64 * len(SHAPE))(*numbers, kind, *strides))


def _empty_output(query: Tensor, value: Tensor) -> Tensor:
    return empty((*query.shape[:3], value.shape[3]), query.dtype)
