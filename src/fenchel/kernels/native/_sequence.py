"""The dynamic programs on chains, on the C++ core."""

from __future__ import annotations

from ctypes import c_int, c_int64

import torch
from torch import Tensor

from fenchel.kernels._random import uniform
from fenchel.kernels._table import implements
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, empty, readable
from fenchel.kernels.native._numbers import OMEGAS
from fenchel.kernels.native._structures import BATCH, layout_numbers, over

_F, _I32 = torch.float64, torch.int32
_smoothed = NativeFunction("sequence_smoothed", [c_int, *BATCH, _F, _F])
_product = NativeFunction("sequence_product", [c_int, BATCH[0], _F, *BATCH[1:], _F])
_sample = NativeFunction("sequence_sample", [*BATCH, _F, c_int64, _I32])
_k_best = NativeFunction("sequence_k_best", [*BATCH, c_int64, _I32, _F])


@implements("smoothed.sequence", NATIVE)
def smoothed(
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    omega: str,
    gamma: float,
    with_means: bool,
) -> tuple[Tensor, Tensor | None]:
    """Native twin of the reference's ``smoothed``."""
    scores, sizes = readable(over(scores, gamma)), readable(sizes)
    values = scores.new_empty(scores.shape[0])
    means = torch.empty_like(scores) if with_means else None
    _smoothed(OMEGAS[omega], scores, *scores.shape, layout_numbers(layout), sizes, values, means)
    return values if gamma == 1 else values * gamma, means


@implements("product.sequence", NATIVE)
def product(
    scores: Tensor,
    directions: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    omega: str,
    gamma: float,
) -> Tensor:
    """Native twin of the reference's ``product``."""
    scores, sizes = readable(over(scores, gamma)), readable(sizes)
    directions = readable(over(directions, gamma))
    out = torch.empty_like(scores)
    _product(OMEGAS[omega], scores, directions, *scores.shape, layout_numbers(layout), sizes, out)
    return out


@implements("sample.sequence", NATIVE)
def sample(
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    n: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Lists of parts (n, instances, longest)."""
    scores, sizes = readable(scores), readable(sizes)
    numbers = uniform((n, scores.shape[0], layout[0]), generator)
    out = empty((n, scores.shape[0], most_parts(layout)), torch.int32)
    _sample(
        scores,
        *scores.shape,
        layout_numbers(layout),
        sizes,
        numbers,
        n,
        out,
    )
    return out.long()


@implements("k_best.sequence", NATIVE)
def k_best(scores: Tensor, layout: tuple[int, ...], sizes: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Lists of parts (instances, k, longest) and scores (instances, k), the best first."""
    scores, sizes = readable(scores), readable(sizes)
    out = empty((scores.shape[0], k, most_parts(layout)), torch.int32)
    values = scores.new_empty(scores.shape[0], k)
    _k_best(scores, *scores.shape, layout_numbers(layout), sizes, k, out, values)
    return out.long(), values


def most_parts(layout: tuple[int, ...]) -> int:
    """How many parts a full sequence has."""
    positions, _, kind, has_start, has_end = layout
    return positions + (positions - 1 if kind else 0) + has_start + has_end
