"""The C++ core as a backend: which tensors it takes."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel.kernels._table import Backend
from fenchel.kernels.native import _library

_DTYPES = (torch.float32, torch.float64)
_TOO_LONG = 2**31  # positions in a row are 32-bit numbers in the core


def _serves(x: Tensor) -> bool:
    if not x.is_cpu or x.dtype not in _DTYPES:
        return False
    if x.numel() >= _TOO_LONG and max(x.shape) >= _TOO_LONG:
        return False
    if _library.LIBRARY is None:
        _library.warn_of_fallback()
        return False
    return True


def _refusal(x: Tensor) -> str:
    if x.is_cpu and x.dtype in _DTYPES:
        return (
            "expected fewer than 2**31 entries along every dimension, but got shape "
            f"{tuple(x.shape)}; leave the `with` block."
        )
    return (
        f"expected a CPU tensor of dtype float32 or float64, but got {x.dtype} on {x.device}; "
        "leave the `with` block or move the tensor."
    )


NATIVE = Backend(
    "native",
    0,
    ("cpu",),
    _serves,
    _refusal,
    missing=_library.REASON,
    consequence=_library.CONSEQUENCE,
    about=f"the native core runs on {_library.instruction_set()}.",
    detail=_library.instruction_set(),
)
