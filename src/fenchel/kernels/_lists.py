"""Sparse rows as lists, and their products with matrices.

Numbers that native code uses as places in memory have their range checked, where values are real.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.kernels._table import find

#: The class of a row that does not count: no number that a user would write.
IGNORED = -(2**63)


def check_classes(name: str, target: Tensor, n: int) -> None:
    """Check class indices on the CPU: in [0, n - 1], or ``IGNORED``."""
    if target.numel() == 0:
        return
    low, high = (int(value) for value in target.aminmax())
    if low == IGNORED:
        low = int(torch.where(target == IGNORED, 0, target).amin())
    if low < 0 or high >= n:
        raise FenchelError(
            f"{name}: expected class indices in [0, {n - 1}] in `target`, but got "
            f"{low if low < 0 else high}."
        )


def check_lists(
    name: str, starts: Tensor, indices: Tensor, values: Tensor, rows: int, n: int
) -> None:
    """Check listed rows on the CPU: ``rows`` of them, with places in [0, n - 1]."""
    check_list_shapes(name, starts, indices, values, rows)
    ends = starts.diff()
    total = indices.shape[0]
    if int(starts[0]) != 0 or int(starts[-1]) != total or (rows > 0 and int(ends.amin()) < 0):
        raise FenchelError(f"{name}: expected `starts` to rise from 0 to {total}, but they do not.")
    if total > 0:
        low, high = (int(value) for value in indices.aminmax())
        if low < 0 or high >= n:
            raise FenchelError(
                f"{name}: expected `indices` in [0, {n - 1}], but got {low if low < 0 else high}."
            )


def check_list_shapes(
    name: str, starts: Tensor, indices: Tensor, values: Tensor, rows: int
) -> None:
    """The part of :func:`check_lists` that reads no values."""
    if (
        starts.dtype != torch.int64
        or indices.dtype != torch.int32
        or starts.dim() != 1
        or starts.shape[0] != rows + 1
        or indices.dim() != 1
        or values.shape != indices.shape
    ):
        raise FenchelError(
            f"{name}: expected `starts` as {rows + 1} int64, and as many `values` as `indices` "
            f"(int32), but got {tuple(starts.shape)} {starts.dtype}, {tuple(values.shape)} and "
            f"{tuple(indices.shape)} {indices.dtype}."
        )


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
