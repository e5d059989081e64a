"""Products of listed rows with dense matrices, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel.kernels._table import REFERENCE, implements

_ENTRIES = 1 << 24  # of the products that are held at a time


@implements("lists.times_matrix", REFERENCE)
def times_matrix(
    starts: Tensor, indices: Tensor, values: Tensor, matrix: Tensor, scale: Tensor | None
) -> Tensor:
    """out[i] = scale[i] * sum over row i's list of value * matrix[index]."""
    out = matrix.new_zeros(starts.shape[0] - 1, matrix.shape[1])
    row = rows_of(starts, values.shape[0])
    step = max(1, _ENTRIES // matrix.shape[1])
    for first in range(0, values.shape[0], step):
        part = slice(first, first + step)
        products = values[part, None] * matrix[indices[part].long()]
        out.index_add_(0, row[part], products)
    return out if scale is None else out * scale[:, None]


@implements("lists.to_dense", REFERENCE)
def to_dense(scale: Tensor, starts: Tensor, indices: Tensor, values: Tensor, n: int) -> Tensor:
    """Listed rows, each times its own ``scale``, as a dense tensor (*scale.shape, n)."""
    row = rows_of(starts, values.shape[0])
    out = values.new_zeros(scale.numel(), n)
    out[row, indices.long()] = values * scale.reshape(-1)[row]
    return out.reshape(*scale.shape, n)


@implements("lists.transpose", REFERENCE)
def transpose(
    starts: Tensor, indices: Tensor, values: Tensor, n: int, scale: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The lists of the columns, rows in order, each value times the scale of its row."""
    row = rows_of(starts, values.shape[0])
    if scale is not None:
        values = values * scale[row]
    order = torch.argsort(indices, stable=True)
    sizes = torch.bincount(indices, minlength=n)
    column_starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return column_starts, row[order].to(indices.dtype), values[order]


def rows_of(starts: Tensor, total: int) -> Tensor:
    """The number of the row of every listed value."""
    rows = torch.arange(starts.shape[0] - 1, device=starts.device)
    return rows.repeat_interleave(starts.diff(), output_size=total)
