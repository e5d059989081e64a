"""Sparse rows as lists, and their products with matrices."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fenchel.kernels._table import find


class Lists(NamedTuple):
    """Rows by their nonzeros: row i has those from starts[i] to starts[i + 1], places ascending."""

    starts: Tensor  # int64, (rows + 1)
    indices: Tensor  # int32, (nnz)
    values: Tensor  # (nnz)

    @property
    def rows(self) -> int:
        return self.starts.shape[0] - 1


def join(parts: list[Lists]) -> Lists:
    """Lists of consecutive rows as one."""
    if len(parts) == 1:
        return parts[0]
    starts, total = [parts[0].starts[:1]], 0
    for part in parts:
        starts.append(part.starts[1:] + total)
        total += part.values.shape[0]
    return Lists(
        torch.cat(starts),
        torch.cat([part.indices for part in parts]),
        torch.cat([part.values for part in parts]),
    )


def times_matrix(lists: Lists, matrix: Tensor, scale: Tensor | None = None) -> Tensor:
    """(rows, d): each row's list times ``matrix`` (n, d), times its own ``scale``."""
    product: Tensor = find("lists.times_matrix", matrix)(*lists, matrix, scale)
    return product


def transpose(lists: Lists, n: int, scale: Tensor | None = None) -> Lists:
    """The lists of the n columns, each value times the ``scale`` of its row."""
    return Lists(*find("lists.transpose", lists.values)(*lists, n, scale))
