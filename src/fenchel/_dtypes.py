"""Which dtype a computation runs in: half precision in float32, solvers in float64."""

from __future__ import annotations

import torch
from torch import Tensor

#: A parameter of a map: one number for all rows, or a tensor with one value per row.
Parameter = float | Tensor

HALF = (torch.float16, torch.bfloat16)


def full_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, in which nothing is computed; any other dtype as it is."""
    return torch.float32 if dtype in HALF else dtype


def full_precision(x: Tensor) -> Tensor:
    """Half precision as float32; any other tensor as it is, not a copy."""
    return x.float() if x.dtype in HALF else x


def widest_dtype(device: torch.device) -> torch.dtype:
    """float64, except on MPS, which has none."""
    return torch.float32 if device.type == "mps" else torch.float64


def widen(x: Tensor) -> Tensor:
    """``x`` in the widest dtype of its device."""
    return x.float() if x.device.type == "mps" else x.double()
