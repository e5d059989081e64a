"""Sums over dependency trees on the C++ core. All of them compute in float64."""

from __future__ import annotations

from ctypes import c_int, c_int64

import torch
from torch import Tensor

from fenchel.kernels._door import NativeFunction, empty, readable
from fenchel.kernels._native_structures import layout_numbers

_F, _I = torch.float64, torch.int64
_tree_sums = NativeFunction("tree_sums", [c_int, _F, _F, c_int64, c_int64, _I, _I, _F, _F])


def tree_log_partition(
    projective: bool, scores: Tensor, layout: tuple[int, ...], sizes: Tensor
) -> Tensor:
    """Native twin of the reference's log-partition."""
    value = empty((scores.shape[0],), torch.float64)
    _run(projective, scores, None, layout, sizes, value, None)
    return value


def tree_marginals(
    projective: bool,
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    direction: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The log-partition, and the marginals or their derivative along a direction."""
    value = empty((scores.shape[0],), torch.float64)
    marginals = empty(scores.shape, torch.float64)
    _run(projective, scores, direction, layout, sizes, value, marginals)
    return value, marginals


def _run(
    projective: bool,
    scores: Tensor,
    direction: Tensor | None,
    layout: tuple[int, ...],
    sizes: Tensor,
    value: Tensor,
    marginals: Tensor | None,
) -> None:
    direction = None if direction is None else readable(direction)
    _tree_sums(
        projective,
        readable(scores),
        direction,
        *scores.shape,
        layout_numbers(layout),
        readable(sizes),
        value,
        marginals,
    )
