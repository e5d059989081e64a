"""The simplex maps on the C++ core: sizes, and one parameter for all rows or one per row."""

from __future__ import annotations

import math
from ctypes import byref, c_double, c_int64
from typing import Any

import torch
from torch import Tensor

from fenchel._dtypes import Parameter
from fenchel.kernels import reference  # noqa: F401 (first: its maps are the list of maps)
from fenchel.kernels._table import implements, row_maps
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, empty, readable
from fenchel.kernels.native._library import LIBRARY

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_ROWS = [c_int64, c_int64, c_int64, torch.float64, c_int64]  # outer, n, inner, parameter, stride


def _register(op: str) -> None:
    """Enter a map of the core and its fused backward pass into the table."""
    forward = {
        dtype: NativeFunction(f"{op}_forward_{suffix}", [dtype, dtype, *_ROWS])
        for dtype, suffix in SUFFIX.items()
    }
    backward = {
        dtype: NativeFunction(
            f"{op}_backward_{suffix}", [dtype, dtype, dtype, torch.float64, *_ROWS]
        )
        for dtype, suffix in SUFFIX.items()
    }

    @implements(op, NATIVE)
    def run(x: Tensor, parameter: Parameter, dim: int) -> Tensor:
        p = torch.empty_like(x, memory_format=torch.contiguous_format)
        forward[x.dtype](x, p, *layout(x, dim), *parameter_rows(parameter, x, dim))
        return p

    @implements(f"{op}.backward", NATIVE)
    def run_backward(
        p: Tensor, grad: Tensor, parameter: Parameter, dim: int, with_parameter: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients in the scores and, if asked, in the parameter (one value per row)."""
        grad_x = torch.empty_like(p, memory_format=torch.contiguous_format)
        rows = list(p.shape)
        rows[dim] = 1
        grad_rows = empty(rows, torch.float64) if with_parameter else None
        backward[p.dtype](
            p, grad, grad_x, grad_rows, *layout(p, dim), *parameter_rows(parameter, p, dim)
        )
        return grad_x, grad_rows


def layout(x: Tensor, dim: int) -> tuple[int, int, int]:
    """A contiguous tensor as (outer, n, inner), n being the size along ``dim``."""
    shape = x.shape
    n = shape[dim]
    if dim == len(shape) - 1:
        return x.numel() // n, n, 1
    inner = math.prod(shape[dim + 1 :])
    return math.prod(shape[:dim]), n, inner


def parameter_rows(value: Parameter, x: Tensor, dim: int) -> tuple[Any, int]:
    """The parameter as (reference to one double, 0) or (tensor of one double per row, 1)."""
    if not isinstance(value, Tensor):
        return byref(c_double(value)), 0
    rows = list(x.shape)
    rows[dim] = 1
    return readable(value.detach().to("cpu").expand(rows), torch.float64), 1


for _op in row_maps():
    if LIBRARY is None or hasattr(LIBRARY, f"fenchel_{_op}_forward_f32"):
        _register(_op)
