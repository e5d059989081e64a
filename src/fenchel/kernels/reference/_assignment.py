"""The oracle of assignments: shortest augmenting paths without potentials, in exact integers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel.kernels._table import REFERENCE, implements


@implements("oracle.assignment", REFERENCE)
def assignment_best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The best assignment of each instance; parts in ascending order."""
    n, m = layout
    out = torch.full((scores.shape[0], min(n, m)), -1, dtype=torch.int64)
    for row, (height, width) in enumerate(sizes.tolist()):
        matrix = scores[row].reshape(n, m)[:height, :width]
        tall = height > width
        columns = _columns(_exact_costs(matrix.T if tall else matrix))
        if columns is None:
            out[row, 0] = -2
            continue
        pairs = [(j, i) if tall else (i, j) for i, j in enumerate(columns)]
        out[row, : len(pairs)] = torch.tensor(sorted(i * m + j for i, j in pairs))
    return out


def _exact_costs(matrix: Tensor) -> list[list[int | None]]:
    """Minus the scores over their common denominator, a power of 2; None for -inf."""
    table = matrix.tolist()
    finite = [x for line in table for x in line if math.isfinite(x)]
    unit = max((x.as_integer_ratio()[1] for x in finite), default=1)

    def cost(x: float) -> int | None:
        if not math.isfinite(x):
            return None
        numerator, denominator = x.as_integer_ratio()
        return -numerator * (unit // denominator)

    return [[cost(x) for x in line] for line in table]


def _columns(costs: list[list[int | None]]) -> list[int] | None:
    """The column of each row in a cheapest matching of all rows, or None if there is none.

    One row after the other enters along a cheapest alternating path, found by Bellman and Ford's
    method on the columns: from a matched column one gets to another by moving its row there.
    """
    row_at: dict[int, int] = {}  # by column
    for row, line in enumerate(costs):
        distance = list(line)
        before: list[int | None] = [None] * len(line)
        changed = True
        while changed:
            changed = False
            for column, mover in row_at.items():
                so_far, back = distance[column], costs[mover][column]
                if so_far is None or back is None:
                    continue
                for to, ahead in enumerate(costs[mover]):
                    known = distance[to]
                    if ahead is None or (known is not None and known <= so_far + ahead - back):
                        continue
                    distance[to], before[to], changed = so_far + ahead - back, column, True
        free = [(d, j) for j, d in enumerate(distance) if d is not None and j not in row_at]
        if not free:
            return None
        end = min(free)[1]
        while (previous := before[end]) is not None:
            row_at[end] = row_at[previous]
            end = previous
        row_at[end] = row
    columns = {row: column for column, row in row_at.items()}
    return [columns[row] for row in range(len(costs))]
