"""The smoothed dynamic programs of alignments on the C++ core, in float64."""

from __future__ import annotations

from ctypes import c_double, c_int

import torch
from torch import Tensor

from fenchel.kernels._table import implements
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, readable
from fenchel.kernels.native._numbers import OMEGAS
from fenchel.kernels.native._structures import BATCH, layout_numbers

_F = torch.float64
_smoothed = NativeFunction("alignment_smoothed", [c_int, c_double, *BATCH, _F, _F])
_product = NativeFunction("alignment_product", [c_int, c_double, _F, _F, *BATCH[1:], _F])


@implements("smoothed.alignment", NATIVE)
def smoothed(
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    omega: str,
    gamma: float,
    with_means: bool,
) -> tuple[Tensor, Tensor | None]:
    """Smoothed maxima (instances) and expected alignments (instances, parts), or None."""
    scores, sizes = readable(scores), readable(sizes)
    values = scores.new_empty(scores.shape[0])
    means = torch.empty_like(scores) if with_means else None
    _smoothed(
        OMEGAS[omega],
        gamma,
        scores,
        *scores.shape,
        layout_numbers(layout),
        sizes,
        values,
        means,
    )
    return values, means


@implements("product.alignment", NATIVE)
def product(
    scores: Tensor,
    directions: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    omega: str,
    gamma: float,
) -> Tensor:
    """The Hessian of the smoothed maximum times a direction each, (instances, parts)."""
    scores, directions, sizes = readable(scores), readable(directions), readable(sizes)
    out = torch.empty_like(scores)
    _product(
        OMEGAS[omega],
        gamma,
        scores,
        directions,
        *scores.shape,
        layout_numbers(layout),
        sizes,
        out,
    )
    return out
