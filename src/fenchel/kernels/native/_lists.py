"""Products of listed rows with dense matrices on the C++ core."""

from __future__ import annotations

from ctypes import c_int64

import torch
from torch import Tensor

from fenchel.kernels._table import implements
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, empty, readable
from fenchel.kernels.native._rows import SUFFIX

_LISTS = [torch.int64, torch.int32]  # starts, indices; their values follow
_times_matrix = {
    dtype: NativeFunction(
        f"list_times_matrix_{suffix}",
        [dtype, *_LISTS, dtype, dtype, dtype, c_int64, c_int64],
    )
    for dtype, suffix in SUFFIX.items()
}
_transpose = {
    dtype: NativeFunction(
        f"transpose_list_{suffix}",
        [dtype, *_LISTS, dtype, c_int64, c_int64, torch.int64, torch.int32, dtype],
    )
    for dtype, suffix in SUFFIX.items()
}


@implements("lists.times_matrix", NATIVE)
def times_matrix(
    starts: Tensor, indices: Tensor, values: Tensor, matrix: Tensor, scale: Tensor | None
) -> Tensor:
    """Native twin of the reference's ``times_matrix``."""
    matrix = readable(matrix)
    rows, d = starts.shape[0] - 1, matrix.shape[1]
    out = empty((rows, d), matrix.dtype)
    scale = None if scale is None else readable(scale)
    _times_matrix[matrix.dtype](scale, starts, indices, values, matrix, out, rows, d)
    return out


@implements("lists.transpose", NATIVE)
def transpose(
    starts: Tensor, indices: Tensor, values: Tensor, n: int, scale: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Native twin of the reference's ``transpose``."""
    scale = None if scale is None else readable(scale)
    column_starts = empty((n + 1,), torch.int64)
    column_rows, column_values = torch.empty_like(indices), torch.empty_like(values)
    _transpose[values.dtype](
        scale,
        starts,
        indices,
        values,
        starts.shape[0] - 1,
        n,
        column_starts,
        column_rows,
        column_values,
    )
    return column_starts, column_rows, column_values
