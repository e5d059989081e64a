"""The maps that fuse entries into groups, on the C++ core."""

from __future__ import annotations

from ctypes import c_int, c_int64

import torch
from torch import Tensor

from fenchel._dtypes import Parameter
from fenchel.kernels._table import implements
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, empty, readable
from fenchel.kernels.native._numbers import GROUPS
from fenchel.kernels.native._rows import SUFFIX, parameter_rows

_forward = {
    t: NativeFunction(
        f"groups_forward_{suffix}",
        [c_int, t, t, torch.int32, t, c_int64, c_int64, torch.float64, c_int64],
    )
    for t, suffix in SUFFIX.items()
}
_backward = {
    t: NativeFunction(f"groups_backward_{suffix}", [t, torch.int32, t, t, c_int64, c_int64])
    for t, suffix in SUFFIX.items()
}


@implements("fusedmax", NATIVE)
def fusedmax(
    x: Tensor, lam: Parameter, with_slope: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Native twin of the reference's ``fusedmax``."""
    return _run_forward("fusedmax", x, lam, with_slope)


@implements("oscarmax", NATIVE)
def oscarmax(
    x: Tensor, lam: Parameter, with_slope: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Native twin of the reference's ``oscarmax``."""
    return _run_forward("oscarmax", x, lam, with_slope)


def _run_forward(
    op: str, x: Tensor, lam: Parameter, with_slope: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    x = readable(x)
    p = torch.empty_like(x)
    slope = torch.empty_like(x) if with_slope else None
    group = empty(x.shape, torch.int32)
    n = x.shape[-1]
    _forward[x.dtype](
        GROUPS[op],
        x,
        p,
        group,
        slope,
        x.numel() // n,
        n,
        *parameter_rows(lam, x, x.dim() - 1),
    )
    return p, group, slope


@implements("groups.backward", NATIVE)
def backward(p: Tensor, group: Tensor, grad: Tensor) -> Tensor:
    """The gradient in the scores. A group is -1 or a place in its row."""
    p, grad, group = readable(p), readable(grad), readable(group)
    out = torch.empty_like(p)
    n = p.shape[-1]
    _backward[p.dtype](p, group, grad, out, p.numel() // n, n)
    return out
