"""The oracles of structures on the C++ core. All of them compute in float64."""

from __future__ import annotations

from ctypes import byref, c_int, c_int64
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels._door import NativeFunction, empty, readable

#: The oracles of the core, in the order of its ``enum Kind``.
KINDS = ("k_subsets", "sequence", "tree", "projective_tree", "assignment", "alignment")

#: A batch of instances: scores, how many, parts, layout, sizes.
BATCH = [torch.float64, c_int64, c_int64, torch.int64, torch.int64]

_most_parts = NativeFunction("most_parts", [c_int, torch.int64], result=c_int64)
_best_parts = NativeFunction("best_parts", [c_int, *BATCH, c_int64, torch.int32, c_int64])


def best_parts(kind: str, scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """Native twin of the reference's oracles."""
    scores, sizes = readable(scores), readable(sizes)
    numbers = layout_numbers(layout)
    number = KINDS.index(kind)
    most = max(1, _most_parts(number, numbers))
    out = empty((scores.shape[0], most), torch.int32)
    _best_parts(number, scores, *scores.shape, numbers, sizes, sizes.shape[1], out, most)
    return out.long()


def layout_numbers(layout: tuple[int, ...]) -> Any:
    """What all instances share, as the core reads it: a reference to its numbers."""
    return byref((c_int64 * len(layout))(*layout))
