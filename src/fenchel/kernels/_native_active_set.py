"""SparseMAP's active-set method on the C++ core. It computes in float64."""

from __future__ import annotations

from ctypes import byref, c_double, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fenchel.kernels._door import NativeFunction, empty, readable
from fenchel.kernels._faces import Faces
from fenchel.kernels._native_structures import KINDS, layout_numbers

_N, _F, _I = c_int64, torch.float64, torch.int64
_active_set = NativeFunction(
    "active_set",
    [
        *(c_int, _F, _N, _N, _N, _I, _I, _N),
        *(_N, c_double, c_int),
        *(_F, _F, _I, _I, c_void_p, c_void_p, c_void_p),
    ],
)
_take = NativeFunction("active_set_take", [c_void_p, _N, _N, _N, torch.int32, _F, _F], result=None)
_face_product = NativeFunction("face_product", [torch.int32, _F, _F, _F, _N, _N, _N, _N])


def active_set(
    kind: str,
    scores: Tensor,
    n_unary: int,
    layout: tuple[int, ...],
    sizes: Tensor,
    max_iter: int,
    tol: float,
    complete: bool,
) -> Faces:
    """SparseMAP of each instance, through the oracle ``kind`` of the core."""
    scores, sizes = readable(scores), readable(sizes)
    count = scores.shape[0]
    means = empty(scores.shape, torch.float64)
    gap = empty((count,), torch.float64)
    iterations = empty((count,), torch.int64)
    status = empty((count,), torch.int64)
    widest, longest, handle = c_int64(), c_int64(), c_void_p()
    _active_set(
        KINDS.index(kind),
        scores,
        *scores.shape,
        n_unary,
        layout_numbers(layout),
        sizes,
        sizes.shape[1],
        max_iter,
        tol,
        complete,
        means,
        gap,
        iterations,
        status,
        byref(widest),
        byref(longest),
        byref(handle),
    )
    shape = (count, widest.value, longest.value)
    try:
        lists = empty(shape, torch.int32)
        weights = empty(shape[:2], torch.float64)
        matrix = empty((count, shape[1], shape[1]), torch.float64)
    except RuntimeError:  # out of memory: the core still holds the result
        _take(handle, *shape, None, None, None)
        raise
    _take(handle, *shape, lists, weights, matrix)
    return Faces(means, lists, weights, matrix, gap, iterations, status)


def face_product(lists: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
    """Native twin of the reference's ``face_product``."""
    lists, matrix, x = readable(lists), readable(matrix), readable(x)
    out = empty(x.shape, torch.float64)
    _face_product(lists, matrix, x, out, *x.shape, *lists.shape[1:])
    return out
