"""ctypes binding of the C++ core: raw pointers, sizes and one parameter a row."""

from __future__ import annotations

import math
from ctypes import byref, c_double, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels._library import LIBRARY as LIBRARY
from fenchel.kernels._library import REASON as REASON
from fenchel.kernels._library import instruction_set as instruction_set
from fenchel.kernels._signals import check_status as check_status

Parameter = float | Tensor

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_OPS = ("entmax", "normmax", "budget", "sq_pnorm_max", "renyimax")

_FORWARD = [c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int64]
_BACKWARD = [c_void_p] * 4 + [c_int64] * 3 + [c_void_p, c_int64]

_forward = {}
_backward = {}
if LIBRARY is not None:
    for _dtype, _name in SUFFIX.items():
        for _op in _OPS:
            _forward[_op, _dtype] = getattr(LIBRARY, f"fenchel_{_op}_forward_{_name}")
            _forward[_op, _dtype].argtypes = _FORWARD
            _backward[_op, _dtype] = getattr(LIBRARY, f"fenchel_{_op}_backward_{_name}")
            _backward[_op, _dtype].argtypes = _BACKWARD


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
    """Gradients of ``op`` in the scores and, if asked, in its parameter (one value a row)."""
    p, grad = readable(p), readable(grad)
    grad_x = torch.empty_like(p)
    at = layout(p, dim)
    values, stride = parameter_pointer(parameter, p, dim)
    rows = list(p.shape)
    rows[dim] = 1
    grad_rows = torch.empty(rows, dtype=torch.float64) if with_parameter else None
    check_status(
        _backward[op, p.dtype](
            p.data_ptr(),
            grad.data_ptr(),
            grad_x.data_ptr(),
            None if grad_rows is None else grad_rows.data_ptr(),
            *at,
            values if stride == 0 else values.data_ptr(),
            stride,
        )
    )
    return grad_x, grad_rows


def _run_forward(op: str, x: Tensor, parameter: Parameter, dim: int) -> Tensor:
    x = readable(x)
    p = torch.empty_like(x)
    outer, n, inner = layout(x, dim)
    values, stride = parameter_pointer(parameter, x, dim)
    check_status(
        _forward[op, x.dtype](
            x.data_ptr(),
            p.data_ptr(),
            outer,
            n,
            inner,
            values if stride == 0 else values.data_ptr(),
            stride,
        )
    )
    return p


def readable(x: Tensor) -> Tensor:
    """x with its entries in memory as they are: contiguous, not lazily negated, not lazily zero."""
    if x._is_zerotensor():
        return torch.zeros(x.shape, dtype=x.dtype)
    return x.resolve_neg().contiguous()


def layout(x: Tensor, dim: int) -> tuple[int, int, int]:
    """A contiguous tensor as (outer, n, inner), n being the size along ``dim``."""
    shape = x.shape
    n = shape[dim]
    if dim == len(shape) - 1:
        return x.numel() // n, n, 1
    inner = math.prod(shape[dim + 1 :])
    return math.prod(shape[:dim]), n, inner


def parameter_pointer(value: Parameter, x: Tensor, dim: int) -> tuple[Any, int]:
    """The parameter as (pointer to one double, 0) or (tensor of one double a row, 1)."""
    if not isinstance(value, Tensor):
        return byref(c_double(value)), 0
    rows = list(x.shape)
    rows[dim] = 1
    return value.detach().expand(rows).to("cpu", torch.float64).contiguous(), 1
