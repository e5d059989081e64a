"""ctypes binding of SparseMAP's active-set method. It computes in float64."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_double, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fenchel.kernels._faces import Faces
from fenchel.kernels._native import LIBRARY, check_status, readable
from fenchel.kernels._native_structures import KINDS

_functions: dict[str, Callable[..., int]] = {}
if LIBRARY is not None:
    LIBRARY.fenchel_active_set.argtypes = [
        *(c_int, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_int64),
        *(c_int64, c_double, c_int),
        *[c_void_p] * 7,
    ]
    LIBRARY.fenchel_active_set_take.argtypes = [c_void_p] + [c_int64] * 3 + [c_void_p] * 3
    LIBRARY.fenchel_active_set_take.restype = None
    LIBRARY.fenchel_face_product.argtypes = [c_void_p] * 4 + [c_int64] * 4
    _functions = {
        name: getattr(LIBRARY, f"fenchel_{name}")
        for name in ("active_set", "active_set_take", "face_product")
    }


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
    scores, sizes = readable(scores), sizes.contiguous()
    count = scores.shape[0]
    numbers = torch.tensor(layout, dtype=torch.int64)
    means = torch.empty(scores.shape, dtype=torch.float64)
    gap = torch.empty(count, dtype=torch.float64)
    iterations = torch.empty(count, dtype=torch.int64)
    status = torch.empty(count, dtype=torch.int64)
    widest, longest, handle = c_int64(), c_int64(), c_void_p()
    check_status(
        _functions["active_set"](
            KINDS.index(kind),
            scores.data_ptr(),
            *scores.shape,
            n_unary,
            numbers.data_ptr(),
            sizes.data_ptr(),
            sizes.shape[1],
            max_iter,
            tol,
            complete,
            means.data_ptr(),
            gap.data_ptr(),
            iterations.data_ptr(),
            status.data_ptr(),
            byref(widest),
            byref(longest),
            byref(handle),
        )
    )
    shape = (count, widest.value, longest.value)
    try:
        lists = torch.empty(shape, dtype=torch.int32)
        weights = torch.empty(shape[:2], dtype=torch.float64)
        matrix = torch.empty(count, shape[1], shape[1], dtype=torch.float64)
    except RuntimeError:  # out of memory: the core still holds the result
        _functions["active_set_take"](handle, *shape, None, None, None)
        raise
    _functions["active_set_take"](
        handle, *shape, lists.data_ptr(), weights.data_ptr(), matrix.data_ptr()
    )
    return Faces(means, lists, weights, matrix, gap, iterations, status)


def face_product(lists: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
    """Native twin of the reference's ``face_product``."""
    lists, matrix, x = lists.contiguous(), readable(matrix), readable(x)
    out = torch.empty(x.shape, dtype=torch.float64)
    check_status(
        _functions["face_product"](
            lists.data_ptr(),
            matrix.data_ptr(),
            x.data_ptr(),
            out.data_ptr(),
            *x.shape,
            *lists.shape[1:],
        )
    )
    return out
