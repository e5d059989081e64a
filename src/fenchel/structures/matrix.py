"""Structures over the cells of a matrix: one flat form, with rows and columns of each instance."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_scores
from fenchel.structures._sizes import check_sizes
from fenchel.structures._structure import masked
from fenchel.structures.problem import Problem, Shaped, check_values, to_flat


def matrix_problem(name: str, scores: Any, lengths: Any, mask: Any) -> Problem:
    """Scores (*batch, n, m) as a problem of n * m parts, with sizes (rows, columns).

    Padding is 0, whatever it held. Whether an instance has a structure is not checked.
    """
    check_scores(name, scores, -1)
    if scores.dim() < 2 or scores.shape[-2] == 0:
        raise FenchelError(
            f"{name}: expected `scores` of shape (*batch, rows, columns) with at least one row, "
            f"but got {tuple(scores.shape)}."
        )
    n, m = scores.shape[-2:]
    batch_shape = scores.shape[:-2]
    sizes = check_sizes(name, lengths, batch_shape, (n, m))
    flat = to_flat(masked(name, scores, mask)).reshape(math.prod(batch_shape), n * m)
    if lengths is not None:
        flat = torch.where(inside_cells(sizes, n, m).flatten(1), flat, 0.0)
    if not all_finite(flat):
        check_values(name, flat)
    return Problem(
        scores=flat,
        n_unary=n * m,
        sizes=sizes,
        layout=(n, m),
        batch_shape=batch_shape,
        dtype=scores.dtype,
        device=scores.device,
        restore=Shaped(scores.shape),
    )


def inside_cells(sizes: Tensor, n: int, m: int) -> Tensor:
    """Which cells an instance has, boolean (instances, n, m)."""
    rows = torch.arange(n) < sizes[:, :1]
    columns = torch.arange(m) < sizes[:, 1:]
    return rows.unsqueeze(2) & columns.unsqueeze(1)


def all_finite(x: Tensor) -> bool:
    """Whether there is nothing but finite numbers; False also if their sum overflows.

    One pass over the numbers, where looking for NaN and for infinities takes several.
    """
    return math.isfinite(float(x.detach().sum()))
