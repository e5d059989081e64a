"""Oracles of structures and SparseMAP's active set on the C++ core. All compute in float64."""

from __future__ import annotations

from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_void_p
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels import reference  # noqa: F401 (first: its oracles are the list of kinds)
from fenchel.kernels._faces import Faces
from fenchel.kernels._table import implements, known
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, empty, readable
from fenchel.kernels.native._library import LIBRARY

#: A batch of instances: scores, how many, parts, layout, sizes.
BATCH = [torch.float64, c_int64, c_int64, torch.int64, torch.int64]

_most_parts = NativeFunction("most_parts", [c_int, torch.int64], result=c_int64)
_best_parts = NativeFunction("best_parts", [c_int, *BATCH, c_int64, torch.int32, c_int64])
_N, _F, _I = c_int64, torch.float64, torch.int64
_active_set = NativeFunction(
    "active_set",
    [
        *(c_int, _F, _N, _N, _N, _I, _I, _N),
        *(_N, c_double, c_int),
        *(_F, _F, _I, _I, _I, _I, c_void_p),
    ],
)
_take = NativeFunction("active_set_take", [c_void_p, _N, _N, _N, torch.int32, _F, _F], result=None)
_face_product = NativeFunction("face_product", [torch.int32, _F, _F, _F, _N, _N, _N, _N])


def register_oracle(kind: str) -> None:
    """Enter an oracle of the core, and the active set that asks it, into the table."""
    number = _number_of(kind)
    if number < 0 and LIBRARY is not None:
        return  # the core has none: the reference serves

    @implements(f"oracle.{kind}", NATIVE)
    def best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
        scores, sizes = readable(scores), readable(sizes)
        numbers = layout_numbers(layout)
        most = max(1, _most_parts(number, numbers))
        out = empty((scores.shape[0], most), torch.int32)
        _best_parts(number, scores, *scores.shape, numbers, sizes, sizes.shape[1], out, most)
        return out.long()

    implements(f"active_set.{kind}", NATIVE)(partial(active_set, number))


def _number_of(kind: str) -> int:
    """What the core calls a kind, -1 if it has none; without the core, nobody asks."""
    if LIBRARY is None:
        return -1
    LIBRARY.fenchel_kind_named.argtypes = [c_char_p]
    LIBRARY.fenchel_kind_named.restype = c_int
    return int(LIBRARY.fenchel_kind_named(kind.upper().encode()))


def layout_numbers(layout: tuple[int, ...]) -> Any:
    """What all instances share, as the core reads it: a reference to its numbers."""
    return byref((c_int64 * len(layout))(*layout))


def active_set(
    number: int,
    scores: Tensor,
    n_unary: int,
    layout: tuple[int, ...],
    sizes: Tensor,
    max_iter: int,
    tol: float,
    complete: bool,
) -> Faces:
    """SparseMAP of each instance, through an oracle of the core."""
    scores, sizes = readable(scores), readable(sizes)
    count = scores.shape[0]
    means = empty(scores.shape, torch.float64)
    gap = empty((count,), torch.float64)
    iterations = empty((count,), torch.int64)
    status = empty((count,), torch.int64)
    widest, longest, handle = c_int64(), c_int64(), c_void_p()
    _active_set(
        number,
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


@implements("face_product", NATIVE)
def face_product(lists: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
    """Native twin of the reference's ``face_product``."""
    lists, matrix, x = readable(lists), readable(matrix), readable(x)
    out = empty(x.shape, torch.float64)
    _face_product(lists, matrix, x, out, *x.shape, *lists.shape[1:])
    return out


def over(x: Tensor, gamma: float) -> Tensor:
    """``x`` at a strength of smoothing, for what knows only that of 1."""
    return x if gamma == 1 else x / gamma


for _kind in known("oracle."):  # a new one is a name in fenchel.h
    register_oracle(_kind)
