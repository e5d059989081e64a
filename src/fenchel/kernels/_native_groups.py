"""ctypes binding of the maps that fuse entries into groups."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fenchel.kernels._native import (
    LIBRARY,
    SUFFIX,
    Parameter,
    check_status,
    parameter_pointer,
    readable,
)

_KINDS = {"fusedmax": 0, "oscarmax": 1}
_functions: dict[tuple[str, torch.dtype], Callable[..., int]] = {}
if LIBRARY is not None:
    for _dtype, _suffix in SUFFIX.items():
        for _name, _arguments in {
            "groups_forward": [c_int] + [c_void_p] * 4 + [c_int64] * 2 + [c_void_p, c_int64],
            "groups_backward": [c_void_p] * 4 + [c_int64] * 2,
        }.items():
            _functions[_name, _dtype] = getattr(LIBRARY, f"fenchel_{_name}_{_suffix}")
            _functions[_name, _dtype].argtypes = _arguments  # type: ignore[attr-defined]


def forward(
    op: str, x: Tensor, lam: Parameter, with_slope: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Native twin of the reference's ``fusedmax`` and ``oscarmax``."""
    x = readable(x)
    p = torch.empty_like(x)
    slope = torch.empty_like(x) if with_slope else None
    group = torch.empty(x.shape, dtype=torch.int32)
    n = x.shape[-1]
    pointer, stride = parameter_pointer(lam, x, x.dim() - 1)
    check_status(
        _functions["groups_forward", x.dtype](
            _KINDS[op],
            x.data_ptr(),
            p.data_ptr(),
            group.data_ptr(),
            None if slope is None else slope.data_ptr(),
            x.numel() // n,
            n,
            pointer if stride == 0 else pointer.data_ptr(),
            stride,
        )
    )
    return p, group, slope


def backward(p: Tensor, group: Tensor, grad: Tensor) -> Tensor:
    """The gradient in the scores."""
    p, grad, group = readable(p), readable(grad), group.contiguous()
    out = torch.empty_like(p)
    n = p.shape[-1]
    check_status(
        _functions["groups_backward", p.dtype](
            p.data_ptr(), group.data_ptr(), grad.data_ptr(), out.data_ptr(), p.numel() // n, n
        )
    )
    return out
