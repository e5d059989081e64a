"""Entmax on the C++ core: the map, its nonzeros, and its loss.

How many nonzeros there are shows only afterwards: the core keeps them until they are taken.
"""

from __future__ import annotations

from ctypes import byref, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from fenchel._dtypes import Parameter
from fenchel.kernels._table import implements
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, empty, readable
from fenchel.kernels.native._rows import (
    SUFFIX,
    layout,
    parameter_rows,
)

_ROWS = [c_int64, c_int64, c_int64, torch.float64, c_int64]  # outer, n, inner, alpha, its stride
_COUNTS = [torch.int64, torch.int64]  # sizes, starts

_entmax_sparse = {
    dtype: NativeFunction(
        f"entmax_sparse_{suffix}", [dtype, *_ROWS, *_COUNTS, torch.float64, c_void_p]
    )
    for dtype, suffix in SUFFIX.items()
}
_entmax_loss = {
    dtype: NativeFunction(
        f"entmax_loss_{suffix}",
        [dtype, *_ROWS, torch.int64, dtype, torch.float64, c_int64, *_COUNTS, c_void_p],
    )
    for dtype, suffix in SUFFIX.items()
}
_list_to_dense = {
    dtype: NativeFunction(
        f"list_to_dense_{suffix}",
        [dtype, torch.int64, torch.int32, dtype, dtype, c_int64, c_int64],
    )
    for dtype, suffix in SUFFIX.items()
}
_take = {
    (index, dtype): NativeFunction(f"sparse_{name}_{suffix}", [c_void_p, index, dtype], result=None)
    for dtype, suffix in SUFFIX.items()
    for index, name in {torch.int64: "take", torch.int32: "take32"}.items()
}


@implements("entmax.sparse", NATIVE)
def sparse_entmax(x: Tensor, alpha: Parameter) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Support of entmax along the last axis: (indices, values, sizes, threshold), row by row."""
    x = readable(x)
    sizes, starts = _counts(x)
    threshold = empty(x.shape[:-1], torch.float64)
    handle = c_void_p()
    _entmax_sparse[x.dtype](x, *_rows(x, alpha), sizes, starts, threshold, byref(handle))
    indices, values = take(handle, int(starts[-1]), x.dtype, torch.int64)
    return indices, values, sizes, threshold


@implements("entmax.loss", NATIVE)
def entmax_loss(
    x: Tensor, alpha: Parameter, target: Tensor, with_slope: bool, most: int | None = None
) -> tuple[Any, ...]:
    """Losses along the last axis and what their gradient needs.

    Returns losses, slopes (derivatives in alpha, if asked), starts, indices (int32) and values: the
    nonzeros of p - y of row i are those from starts[i] to starts[i + 1]. A target of ``IGNORED`` is
    ignored. If there are more than ``most`` of them, indices and values are None.
    """
    sizes, starts = _counts(x)
    handle = c_void_p()
    limit = x.numel() if most is None else most
    loss, slope = _run_loss(x, alpha, target, with_slope, limit, sizes, starts, handle)
    total = int(starts[-1])
    if total > limit:
        _take[torch.int32, x.dtype](handle, None, None)
        return loss, slope, starts, None, None
    indices, values = take(handle, total, x.dtype, torch.int32)
    return loss, slope, starts, indices, values


@implements("entmax.loss_value", NATIVE)
def entmax_loss_value(x: Tensor, alpha: Parameter, target: Tensor) -> Tensor:
    """The losses alone."""
    return _run_loss(x, alpha, target, False, 0, None, None, None)[0]


@implements("lists.to_dense", NATIVE)
def list_to_dense(scale: Tensor, starts: Tensor, indices: Tensor, values: Tensor, n: int) -> Tensor:
    """Listed rows, each times its own ``scale``, as a dense tensor (*scale.shape, n)."""
    scale = readable(scale)
    out = empty((*scale.shape, n), scale.dtype)
    _list_to_dense[scale.dtype](scale, starts, indices, values, out, scale.numel(), n)
    return out


def take(
    handle: c_void_p, total: int, dtype: torch.dtype, index: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The nonzeros that the core keeps: (indices, values)."""
    function = _take[index, dtype]
    try:
        indices, values = empty((total,), index), empty((total,), dtype)
    except RuntimeError:  # out of memory: the core still holds the result
        function(handle, None, None)
        raise
    function(handle, indices, values)
    return indices, values


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
    loss = empty(x.shape[:-1], x.dtype)
    slope = empty((*x.shape[:-1], 1), torch.float64) if with_slope else None
    _entmax_loss[x.dtype](
        x,
        *_rows(x, alpha),
        target,
        loss,
        slope,
        most,
        sizes,
        starts,
        None if handle is None else byref(handle),
    )
    return loss, slope


def _rows(x: Tensor, alpha: Parameter) -> tuple[Any, ...]:
    return *layout(x, x.dim() - 1), *parameter_rows(alpha, x, x.dim() - 1)


def _counts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Memory for the number of nonzeros of each row, and for where they start."""
    sizes = empty(x.shape[:-1], torch.int64)
    return sizes, empty((sizes.numel() + 1,), torch.int64)
