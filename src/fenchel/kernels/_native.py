"""The simplex maps on the C++ core: sizes, and one parameter for all rows or one per row."""

from __future__ import annotations

import math
from ctypes import byref, c_double, c_int64
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels._door import NativeFunction, empty, readable
from fenchel.kernels._library import LIBRARY, REASON, instruction_set

__all__ = ["LIBRARY", "REASON", "instruction_set"]

Parameter = float | Tensor

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_OPS = ("entmax", "normmax", "budget", "sq_pnorm_max", "renyimax")
_ROWS = [c_int64, c_int64, c_int64, torch.float64, c_int64]  # outer, n, inner, parameter, stride

_forward = {
    (op, dtype): NativeFunction(f"{op}_forward_{suffix}", [dtype, dtype, *_ROWS])
    for op in _OPS
    for dtype, suffix in SUFFIX.items()
}
_backward = {
    (op, dtype): NativeFunction(
        f"{op}_backward_{suffix}", [dtype, dtype, dtype, torch.float64, *_ROWS]
    )
    for op in _OPS
    for dtype, suffix in SUFFIX.items()
}


def entmax(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``entmax``."""
    return _run_forward("entmax", x, alpha, dim)


def normmax(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``normmax``."""
    return _run_forward("normmax", x, alpha, dim)


def budget(x: Tensor, k: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``budget``."""
    return _run_forward("budget", x, k, dim)


def sq_pnorm_max(x: Tensor, q: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``sq_pnorm_max``."""
    return _run_forward("sq_pnorm_max", x, q, dim)


def renyimax(x: Tensor, beta: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``renyimax``."""
    return _run_forward("renyimax", x, beta, dim)


def backward(
    op: str, p: Tensor, grad: Tensor, parameter: Parameter, dim: int, with_parameter: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients of ``op`` in the scores and, if asked, in its parameter (one value per row)."""
    grad_x = torch.empty_like(p, memory_format=torch.contiguous_format)
    rows = list(p.shape)
    rows[dim] = 1
    grad_rows = empty(rows, torch.float64) if with_parameter else None
    _backward[op, p.dtype](
        p, grad, grad_x, grad_rows, *layout(p, dim), *parameter_rows(parameter, p, dim)
    )
    return grad_x, grad_rows


def _run_forward(op: str, x: Tensor, parameter: Parameter, dim: int) -> Tensor:
    p = torch.empty_like(x, memory_format=torch.contiguous_format)
    _forward[op, x.dtype](x, p, *layout(x, dim), *parameter_rows(parameter, x, dim))
    return p


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
