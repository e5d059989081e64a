"""ctypes binding of the products of listed rows with dense matrices."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64, c_void_p

import torch
from torch import Tensor

from fenchel.kernels._native import LIBRARY, SUFFIX, check_status, readable

_functions: dict[tuple[str, torch.dtype], Callable[..., int]] = {}
if LIBRARY is not None:
    for _dtype, _suffix in SUFFIX.items():
        for _name, _arguments in {
            "list_times_matrix": [c_void_p] * 6 + [c_int64] * 2,
            "transpose_list": [c_void_p] * 4 + [c_int64] * 2 + [c_void_p] * 3,
        }.items():
            _functions[_name, _dtype] = getattr(LIBRARY, f"fenchel_{_name}_{_suffix}")
            _functions[_name, _dtype].argtypes = _arguments  # type: ignore[attr-defined]


def times_matrix(
    starts: Tensor, indices: Tensor, values: Tensor, matrix: Tensor, scale: Tensor | None
) -> Tensor:
    """Native twin of the reference's ``times_matrix``."""
    matrix = readable(matrix)
    rows, d = starts.shape[0] - 1, matrix.shape[1]
    out = torch.empty(rows, d, dtype=matrix.dtype)
    scale = None if scale is None else readable(scale)
    check_status(
        _functions["list_times_matrix", matrix.dtype](
            None if scale is None else scale.data_ptr(),
            starts.data_ptr(),
            indices.data_ptr(),
            values.data_ptr(),
            matrix.data_ptr(),
            out.data_ptr(),
            rows,
            d,
        )
    )
    return out


def transpose(
    starts: Tensor, indices: Tensor, values: Tensor, n: int, scale: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Native twin of the reference's ``transpose``."""
    scale = None if scale is None else readable(scale)
    column_starts = torch.empty(n + 1, dtype=torch.int64)
    column_rows, column_values = torch.empty_like(indices), torch.empty_like(values)
    check_status(
        _functions["transpose_list", values.dtype](
            None if scale is None else scale.data_ptr(),
            starts.data_ptr(),
            indices.data_ptr(),
            values.data_ptr(),
            starts.shape[0] - 1,
            n,
            column_starts.data_ptr(),
            column_rows.data_ptr(),
            column_values.data_ptr(),
        )
    )
    return column_starts, column_rows, column_values
