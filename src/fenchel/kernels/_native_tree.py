"""ctypes binding of the sums over dependency trees. All of them compute in float64."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fenchel.kernels._native import LIBRARY, check_status, readable

_functions: dict[str, Callable[..., int]] = {}
if LIBRARY is not None:
    LIBRARY.fenchel_tree_sums.argtypes = [
        c_int,
        *[c_void_p] * 2,
        *[c_int64] * 2,
        *[c_void_p] * 4,
    ]
    _functions = {"tree_sums": LIBRARY.fenchel_tree_sums}


def tree_log_partition(
    projective: bool, scores: Tensor, layout: tuple[int, ...], sizes: Tensor
) -> Tensor:
    """Native twin of the reference's log-partition."""
    value = torch.empty(scores.shape[0], dtype=torch.float64)
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
    value = torch.empty(scores.shape[0], dtype=torch.float64)
    marginals = torch.empty(scores.shape, dtype=torch.float64)
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
    scores, sizes = readable(scores), sizes.contiguous()
    direction = None if direction is None else readable(direction)
    numbers = torch.tensor(layout, dtype=torch.int64)
    check_status(
        _functions["tree_sums"](
            projective,
            scores.data_ptr(),
            None if direction is None else direction.data_ptr(),
            *scores.shape,
            numbers.data_ptr(),
            sizes.data_ptr(),
            value.data_ptr(),
            None if marginals is None else marginals.data_ptr(),
        )
    )
