"""ctypes binding of the oracles of structures. All of them compute in float64."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fenchel.kernels._native import LIBRARY, check_status, readable

#: The oracles of the core, in the order of its ``enum Kind``.
KINDS = ("k_subsets", "sequence", "tree", "projective_tree", "assignment", "alignment")

_functions: dict[str, Callable[..., int]] = {}
if LIBRARY is not None:
    LIBRARY.fenchel_most_parts.restype = c_int64
    LIBRARY.fenchel_most_parts.argtypes = [c_int, c_void_p]
    _pointers = [c_void_p, c_void_p]
    LIBRARY.fenchel_best_parts.argtypes = [c_int, c_void_p, c_int64, c_int64, *_pointers]
    LIBRARY.fenchel_best_parts.argtypes += [c_int64, c_void_p, c_int64]
    _functions = {
        name: getattr(LIBRARY, f"fenchel_{name}") for name in ("most_parts", "best_parts")
    }


def best_parts(kind: str, scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """Native twin of the reference's oracles."""
    scores, sizes = readable(scores), sizes.contiguous()
    numbers = torch.tensor(layout, dtype=torch.int64)
    number = KINDS.index(kind)
    most = max(1, _functions["most_parts"](number, numbers.data_ptr()))
    out = torch.empty(scores.shape[0], most, dtype=torch.int32)
    check_status(
        _functions["best_parts"](
            number,
            scores.data_ptr(),
            *scores.shape,
            numbers.data_ptr(),
            sizes.data_ptr(),
            sizes.shape[1],
            out.data_ptr(),
            most,
        )
    )
    return out.long()
