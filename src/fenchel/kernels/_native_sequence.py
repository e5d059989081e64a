"""ctypes binding of the dynamic programs on chains."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels._native import LIBRARY, check_status, readable

_OMEGA = {"entropy": 0, "l2": 1}
_functions: dict[str, Callable[..., int]] = {}
if LIBRARY is not None:
    _BATCH: list[Any] = [
        c_void_p,
        c_int64,
        c_int64,
        c_void_p,
        c_void_p,
    ]  # scores, their shape, layout, sizes
    _functions = {
        name: getattr(LIBRARY, f"fenchel_sequence_{name}")
        for name in ("smoothed", "product", "sample", "k_best")
    }
    LIBRARY.fenchel_sequence_smoothed.argtypes = [c_int, *_BATCH, c_void_p, c_void_p]
    LIBRARY.fenchel_sequence_product.argtypes = [c_int, c_void_p, *_BATCH, c_void_p]
    LIBRARY.fenchel_sequence_sample.argtypes = [*_BATCH, c_void_p, c_int64, c_void_p]
    LIBRARY.fenchel_sequence_k_best.argtypes = [*_BATCH, c_int64, c_void_p, c_void_p]


def smoothed(
    omega: str, scores: Tensor, layout: tuple[int, ...], sizes: Tensor, with_means: bool
) -> tuple[Tensor, Tensor | None]:
    """Smoothed maxima (instances) and, if asked, their gradients (instances, parts)."""
    scores, numbers = readable(scores), torch.tensor(layout, dtype=torch.int64)
    values = scores.new_empty(scores.shape[0])
    means = torch.empty_like(scores) if with_means else None
    check_status(
        _functions["smoothed"](
            _OMEGA[omega],
            scores.data_ptr(),
            *scores.shape,
            numbers.data_ptr(),
            sizes.data_ptr(),
            values.data_ptr(),
            None if means is None else means.data_ptr(),
        )
    )
    return values, means


def product(
    omega: str, scores: Tensor, direction: Tensor, layout: tuple[int, ...], sizes: Tensor
) -> Tensor:
    """Hessians of the smoothed maxima times directions (instances, parts)."""
    scores, direction = readable(scores), readable(direction)
    numbers = torch.tensor(layout, dtype=torch.int64)
    out = torch.empty_like(scores)
    check_status(
        _functions["product"](
            _OMEGA[omega],
            scores.data_ptr(),
            direction.data_ptr(),
            *scores.shape,
            numbers.data_ptr(),
            sizes.data_ptr(),
            out.data_ptr(),
        )
    )
    return out


def sample(scores: Tensor, layout: tuple[int, ...], sizes: Tensor, uniform: Tensor) -> Tensor:
    """Lists of parts (n, instances, longest) from uniform numbers (n, instances, T)."""
    scores, numbers = readable(scores), torch.tensor(layout, dtype=torch.int64)
    out = torch.empty(*uniform.shape[:2], most_parts(layout), dtype=torch.int32)
    check_status(
        _functions["sample"](
            scores.data_ptr(),
            *scores.shape,
            numbers.data_ptr(),
            sizes.data_ptr(),
            readable(uniform).data_ptr(),
            uniform.shape[0],
            out.data_ptr(),
        )
    )
    return out.long()


def k_best(scores: Tensor, layout: tuple[int, ...], sizes: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Lists of parts (instances, k, longest) and scores (instances, k), the best first."""
    scores, numbers = readable(scores), torch.tensor(layout, dtype=torch.int64)
    out = torch.empty(scores.shape[0], k, most_parts(layout), dtype=torch.int32)
    values = scores.new_empty(scores.shape[0], k)
    check_status(
        _functions["k_best"](
            scores.data_ptr(),
            *scores.shape,
            numbers.data_ptr(),
            sizes.data_ptr(),
            k,
            out.data_ptr(),
            values.data_ptr(),
        )
    )
    return out.long(), values


def most_parts(layout: tuple[int, ...]) -> int:
    """How many parts a full sequence has."""
    positions, _, kind, has_start, has_end = layout
    return positions + (positions - 1 if kind else 0) + has_start + has_end
