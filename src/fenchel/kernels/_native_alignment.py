"""ctypes binding of the smoothed dynamic programs of alignments, in float64."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_double, c_int, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from fenchel.kernels._native import LIBRARY, check_status, readable

#: The smoothings of the core, in the order of its ``enum AlignmentOmega``.
OMEGAS = ("entropy", "l2")

_functions: dict[str, Callable[..., int]] = {}
if LIBRARY is not None:
    _head: list[Any] = [c_int, c_double]
    LIBRARY.fenchel_alignment_smoothed.argtypes = (
        _head + [c_void_p] + [c_int64] * 2 + [c_void_p] * 4
    )
    LIBRARY.fenchel_alignment_product.argtypes = (
        _head + [c_void_p] * 2 + [c_int64] * 2 + [c_void_p] * 3
    )
    _functions = {
        name: getattr(LIBRARY, f"fenchel_alignment_{name}") for name in ("smoothed", "product")
    }


def smoothed(
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    omega: str,
    gamma: float,
    with_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Smoothed maxima (instances) and expected alignments (instances, parts), or None."""
    scores, sizes = readable(scores), sizes.contiguous()
    numbers = torch.tensor(layout, dtype=torch.int64)
    values = scores.new_empty(scores.shape[0])
    gradient = torch.empty_like(scores) if with_gradient else None
    check_status(
        _functions["smoothed"](
            OMEGAS.index(omega),
            gamma,
            scores.data_ptr(),
            *scores.shape,
            numbers.data_ptr(),
            sizes.data_ptr(),
            values.data_ptr(),
            None if gradient is None else gradient.data_ptr(),
        )
    )
    return values, gradient


def product(
    scores: Tensor,
    directions: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    omega: str,
    gamma: float,
) -> Tensor:
    """The Hessian of the smoothed maximum times a direction each, (instances, parts)."""
    scores, directions, sizes = readable(scores), readable(directions), sizes.contiguous()
    numbers = torch.tensor(layout, dtype=torch.int64)
    out = torch.empty_like(scores)
    check_status(
        _functions["product"](
            OMEGAS.index(omega),
            gamma,
            scores.data_ptr(),
            directions.data_ptr(),
            *scores.shape,
            numbers.data_ptr(),
            sizes.data_ptr(),
            out.data_ptr(),
        )
    )
    return out
