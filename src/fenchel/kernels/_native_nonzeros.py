"""ctypes binding of the kernels that find the nonzeros of entmax: sparse entmax and its loss.

How many there are shows only afterwards: the core keeps them until they are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels._native import (
    LIBRARY,
    SUFFIX,
    Parameter,
    check_status,
    layout,
    parameter_pointer,
    readable,
)

_ROWS = [c_void_p] + [c_int64] * 3 + [c_void_p, c_int64]
_functions: dict[tuple[str, torch.dtype], Callable[..., int]] = {}
if LIBRARY is not None:
    for _dtype, _suffix in SUFFIX.items():
        for _name, _arguments in {
            "entmax_sparse": _ROWS + [c_void_p] * 4,
            "entmax_loss": _ROWS + [c_void_p] * 3 + [c_int64] + [c_void_p] * 3,
            "list_to_dense": [c_void_p] * 5 + [c_int64] * 2,
            "sparse_take": [c_void_p] * 3,
            "sparse_take32": [c_void_p] * 3,
        }.items():
            _functions[_name, _dtype] = getattr(LIBRARY, f"fenchel_{_name}_{_suffix}")
            _functions[_name, _dtype].argtypes = _arguments  # type: ignore[attr-defined]


def sparse_entmax(x: Tensor, alpha: Parameter) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Support of entmax along the last axis: (indices, values, sizes, threshold), row by row."""
    x = readable(x)
    sizes, starts = _counts(x)
    threshold = torch.empty(x.shape[:-1], dtype=torch.float64)
    handle = c_void_p()
    pointer, stride = _alpha(alpha, x)
    check_status(
        _functions["entmax_sparse", x.dtype](
            x.data_ptr(),
            *layout(x, x.dim() - 1),
            pointer if stride == 0 else pointer.data_ptr(),
            stride,
            sizes.data_ptr(),
            starts.data_ptr(),
            threshold.data_ptr(),
            byref(handle),
        )
    )
    indices, values = take("sparse_take", handle, int(starts[-1]), x.dtype, torch.int64)
    return indices, values, sizes, threshold


def entmax_loss(
    x: Tensor, alpha: Parameter, target: Tensor, with_slope: bool, most: int | None = None
) -> tuple[Any, ...]:
    """Losses along the last axis and what their gradient needs.

    Returns losses, slopes (derivatives in alpha, if asked), starts, indices (int32) and values: the
    nonzeros of p - y of row i are those from starts[i] to starts[i + 1]. A negative target is
    ignored. If there are more than ``most`` of them, indices and values are None.
    """
    x, target = readable(x), target.contiguous()
    sizes, starts = _counts(x)
    handle = c_void_p()
    limit = x.numel() if most is None else most
    loss, slope = _run_loss(x, alpha, target, with_slope, limit, sizes, starts, handle)
    total = int(starts[-1])
    if total > limit:
        _functions["sparse_take32", x.dtype](handle, None, None)
        return loss, slope, starts, None, None
    indices, values = take("sparse_take32", handle, total, x.dtype, torch.int32)
    return loss, slope, starts, indices, values


def entmax_loss_value(x: Tensor, alpha: Parameter, target: Tensor) -> Tensor:
    """The losses alone."""
    return _run_loss(readable(x), alpha, target.contiguous(), False, 0, None, None, None)[0]


def list_to_dense(scale: Tensor, starts: Tensor, indices: Tensor, values: Tensor, n: int) -> Tensor:
    """Listed rows, each times its own ``scale``, as a dense tensor (*scale.shape, n)."""
    scale = readable(scale)
    out = torch.empty((*scale.shape, n), dtype=scale.dtype)
    check_status(
        _functions["list_to_dense", scale.dtype](
            scale.data_ptr(),
            starts.data_ptr(),
            indices.data_ptr(),
            values.data_ptr(),
            out.data_ptr(),
            scale.numel(),
            n,
        )
    )
    return out


def _run_loss(
    x: Tensor,
    alpha: Parameter,
    target: Tensor,
    with_slope: bool,
    most: int,
    sizes: Tensor | None,
    starts: Tensor | None,
    handle: c_void_p | None,
) -> tuple[Tensor, Tensor | None]:
    loss = torch.empty(x.shape[:-1], dtype=x.dtype)
    slope = torch.empty((*x.shape[:-1], 1), dtype=torch.float64) if with_slope else None
    pointer, stride = _alpha(alpha, x)
    check_status(
        _functions["entmax_loss", x.dtype](
            x.data_ptr(),
            *layout(x, x.dim() - 1),
            pointer if stride == 0 else pointer.data_ptr(),
            stride,
            target.data_ptr(),
            loss.data_ptr(),
            None if slope is None else slope.data_ptr(),
            most,
            None if sizes is None else sizes.data_ptr(),
            None if starts is None else starts.data_ptr(),
            None if handle is None else byref(handle),
        )
    )
    return loss, slope


def _alpha(alpha: Parameter, x: Tensor) -> tuple[Any, int]:
    return parameter_pointer(alpha, x, x.dim() - 1)


def _counts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Memory for the number of nonzeros of each row, and for where they start."""
    sizes = torch.empty(x.shape[:-1], dtype=torch.int64)
    return sizes, torch.empty(sizes.numel() + 1, dtype=torch.int64)


def take(
    function: str, handle: c_void_p, total: int, dtype: torch.dtype, index: torch.dtype
) -> tuple[Tensor, Tensor]:
    take = _functions[function, dtype]
    try:
        indices = torch.empty(total, dtype=index)
        values = torch.empty(total, dtype=dtype)
    except RuntimeError:  # out of memory: the core still holds the result
        take(handle, None, None)
        raise
    take(handle, indices.data_ptr(), values.data_ptr())
    return indices, values
