"""Single alignments: the best one, samples, and the k best, in plain torch and Python."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from fenchel.kernels._random import uniform
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._alignment import STEPS, alignment_values


@implements("oracle.alignment", REFERENCE)
def alignment_best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The best path of each instance, from its first cell to its last."""
    values = alignment_values(scores, layout, "max", 1.0)
    instances = torch.arange(len(scores))
    parts = _walk(values, sizes, instances, lambda before: before.argmax(0))  # the first of equals
    finite = values[instances, sizes[:, 0] - 1, sizes[:, 1] - 1] > -math.inf
    parts[~finite] = -1
    parts[~finite, :1] = -2
    return parts


@implements("sample.alignment", REFERENCE, alone=True)
def alignment_samples(
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    n: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Paths (n, instances, m + n - 1) from the Gibbs distribution of their scores.

    From the last cell back: the share of the three cells before it in the log-partition of a cell
    is the probability that the path came from there.
    """
    values = alignment_values(scores, layout, "entropy", 1.0)
    instances = torch.arange(len(scores)).repeat(n)

    def choose(before: Tensor) -> Tensor:
        shares = (before - before.amax(0)).exp().cumsum(0)
        u = uniform((before.shape[1],), generator) * shares[-1]
        return (u >= shares[:-1]).sum(0)

    parts = _walk(values, sizes, instances, choose)
    return parts.reshape(n, len(scores), parts.shape[1])


def _walk(
    values: Tensor, sizes: Tensor, instances: Tensor, choose: Callable[[Tensor], Tensor]
) -> Tensor:
    """Paths (walkers, m + n - 1) from the last cell of the instance of each walker back.

    ``choose`` gets the values of the three cells before each walker's, (3, walkers), of which at
    least one is finite for walkers on a path, and returns which of them each goes to.
    """
    m, n = values.shape[1:]
    steps = torch.tensor(STEPS)
    i, j = sizes[instances, 0] - 1, sizes[instances, 1] - 1
    seen = []
    for _ in range(m + n - 1):
        seen.append(torch.where(i >= 0, i * n + j, -1))
        before = torch.stack([_entries(values, instances, i - di, j - dj) for di, dj in STEPS])
        dead = (before == -math.inf).all(0)  # at the first cell, or on no path
        move = steps[choose(torch.where(dead, 0.0, before))]
        i = torch.where(dead, -1, i - move[:, 0])
        j = torch.where(dead, -1, j - move[:, 1])
    parts = torch.stack(seen, 1).flip(1)
    # The places left are in front; they go to the end.
    return parts.gather(1, (parts < 0).long().sort(dim=1, stable=True).indices)


def _entries(values: Tensor, instances: Tensor, i: Tensor, j: Tensor) -> Tensor:
    inside = (i >= 0) & (j >= 0)
    return torch.where(inside, values[instances, i.clamp(min=0), j.clamp(min=0)], -math.inf)


@implements("k_best.alignment", REFERENCE, alone=True)
def alignment_k_best(
    scores: Tensor, layout: tuple[int, ...], sizes: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k best paths (instances, k, m + n - 1) and their scores (instances, k), -inf for none.

    Every cell keeps its k best paths as (score, rank among the paths of which cell before).
    """
    m, n = layout
    parts = torch.full((len(scores), k, m + n - 1), -1)
    best = torch.full((len(scores), k), -math.inf, dtype=scores.dtype)
    for row, (height, width) in enumerate(sizes.tolist()):
        table = scores[row].reshape(m, n)[:height, :width].tolist()
        kept: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
        for i, j in itertools.product(range(height), range(width)):
            lists = [
                [(-s, which, rank) for rank, (s, _, _) in enumerate(kept.get((i - di, j - dj), []))]
                for which, (di, dj) in enumerate(STEPS)
            ]
            before = heapq.merge(*lists) if i or j else [(0.0, -1, 0)]
            ranked = [(table[i][j] - s, w, r) for s, w, r in itertools.islice(before, k)]
            kept[i, j] = [path for path in ranked if path[0] > -math.inf]
        for place, path in enumerate(kept[height - 1, width - 1]):
            best[row, place] = path[0]
            i, j, cells = height - 1, width - 1, []
            while True:
                cells.append(i * n + j)
                if not (i or j):
                    break
                _, which, rank = path
                i, j = i - STEPS[which][0], j - STEPS[which][1]
                path = kept[i, j][rank]
            parts[row, place, : len(cells)] = torch.tensor(cells[::-1])
    return parts, best
