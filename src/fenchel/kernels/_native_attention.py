"""ctypes binding of entmax attention. Tensors are (batch, heads, length, width), contiguous."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_double, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels._native import LIBRARY, SUFFIX, check_status
from fenchel.kernels._native_nonzeros import take

_P, _N = c_void_p, c_int64
_functions: dict[tuple[str, torch.dtype], Callable[..., int]] = {}
if LIBRARY is not None:
    for _dtype, _suffix in SUFFIX.items():
        for _name, _arguments in {
            "attention_forward": [_P] * 5 + [c_double, _P, _N] + [_P] * 4,
            "attention_backward": [_P] * 5 + [c_double, _P, _N] + [_P] * 9,
            "attention_output": [_P] * 6,
        }.items():
            _functions[_name, _dtype] = getattr(LIBRARY, f"fenchel_{_name}_{_suffix}")
            _functions[_name, _dtype].argtypes = _arguments  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Weights:
    """The nonzeros of attention's weights: row r = (batch, head, query) in order, from starts[r]
    to starts[r + 1]."""

    starts: Tensor
    indices: Tensor
    values: Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    alpha: Tensor,
    causal: bool,
    scale: float,
    with_output: bool = True,
) -> tuple[Tensor | None, Weights]:
    """Output and weights. ``alpha`` is float64 of shape (batch, heads) or (1,)."""
    out = _empty_output(query, value) if with_output else None
    rows = query.shape[0] * query.shape[1] * query.shape[2]
    sizes = torch.empty(rows, dtype=torch.int64)
    starts = torch.empty(rows + 1, dtype=torch.int64)
    handle = c_void_p()
    _run(query, key, value, mask, alpha, causal, scale, out, sizes, starts, handle)
    indices, values = take("sparse_take32", handle, int(starts[-1]), query.dtype, torch.int32)
    return out, Weights(starts, indices, values)


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


def output_of_weights(query: Tensor, key: Tensor, value: Tensor, weights: Weights) -> Tensor:
    """Listed weights times the values."""
    out = _empty_output(query, value)
    check_status(
        _functions["attention_output", query.dtype](
            value.data_ptr(),
            _shape(query, key, value, None, False),
            weights.starts.data_ptr(),
            weights.indices.data_ptr(),
            weights.values.data_ptr(),
            out.data_ptr(),
        )
    )
    return out


def attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad: Tensor,
    alpha: Tensor,
    scale: float,
    weights: Weights,
    factor: Tensor | None,
    with_alpha: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients in query, key, value, in the listed scores, and in alpha (one a row)."""
    grad_query, grad_key, grad_value = (torch.empty_like(x) for x in (query, key, value))
    grad_scores = torch.empty_like(weights.values)
    rows = query.shape[:3]
    grad_alpha = torch.empty(rows, dtype=torch.float64) if with_alpha else None
    check_status(
        _functions["attention_backward", query.dtype](
            query.data_ptr(),
            key.data_ptr(),
            value.data_ptr(),
            grad.data_ptr(),
            _shape(query, key, value, None, False),
            scale,
            alpha.data_ptr(),
            int(alpha.numel() > 1),
            weights.starts.data_ptr(),
            weights.indices.data_ptr(),
            weights.values.data_ptr(),
            None if factor is None else factor.data_ptr(),
            grad_scores.data_ptr(),
            grad_query.data_ptr(),
            grad_key.data_ptr(),
            grad_value.data_ptr(),
            None if grad_alpha is None else grad_alpha.data_ptr(),
        )
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
    check_status(
        _functions["attention_forward", query.dtype](
            query.data_ptr(),
            key.data_ptr(),
            value.data_ptr(),
            None if mask is None else mask.data_ptr(),
            _shape(query, key, value, mask, causal),
            scale,
            alpha.data_ptr(),
            int(alpha.numel() > 1),
            None if out is None else out.data_ptr(),
            None if sizes is None else sizes.data_ptr(),
            None if starts is None else starts.data_ptr(),
            None if handle is None else byref(handle),
        )
    )


def _shape(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Any:
    """The core's AttentionShape; ``mask`` is expanded to (batch, heads, queries, keys)."""
    batch, heads, queries, d = query.shape
    kind = 0 if mask is None else 1 if mask.dtype == torch.bool else 2
    strides = (0, 0, 0, 0) if mask is None else mask.stride()
    numbers = (batch, heads, key.shape[1], queries, key.shape[2], d, value.shape[3], int(causal))
    return (ctypes.c_int64 * 13)(*numbers, kind, *strides)


def _empty_output(query: Tensor, value: Tensor) -> Tensor:
    return torch.empty((*query.shape[:3], value.shape[3]), dtype=query.dtype)
