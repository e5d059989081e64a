"""Draws of subsets, and lists of the best of them."""

from __future__ import annotations

import heapq
import math

import torch
from torch import Tensor

from fenchel.kernels._random import uniform
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._k_subsets import k_subsets_tables


@implements("sample.k_subsets", REFERENCE, alone=True)
def draw_subsets(
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    n: int,
    generator: torch.Generator | None,
) -> Tensor:
    """``n`` subsets of k items for each instance, drawn by their probability (n, instances, k).

    From the last item to the first: with r to go among the first i items, item i is in with the
    share of those subsets of r that have it.
    """
    count, (items, k) = scores.shape[0], layout
    tables, known = k_subsets_tables(scores, k, sizes)
    left = torch.full((n, count), k)
    parts = torch.empty(n, count, k, dtype=torch.int64)
    rows = torch.arange(count)
    numbers = uniform((items, n, count), generator)
    for i in range(items - 1, -1, -1):
        needed = left.clamp(min=1)
        share = known[:, i] + tables[i][rows, needed - 1] - tables[i + 1][rows, needed]
        inside = (left > 0) & (numbers[i].log() < share)
        last = left - 1
        parts.scatter_(
            2,
            last.clamp(min=0).unsqueeze(2),
            torch.where(
                inside, i, parts.gather(2, last.clamp(min=0).unsqueeze(2)).squeeze(2)
            ).unsqueeze(2),
        )
        left = left - inside.long()
    return parts


@implements("k_best.k_subsets", REFERENCE, alone=True)
def best_subsets(
    scores: Tensor, layout: tuple[int, ...], sizes: Tensor, how_many: int
) -> tuple[Tensor, Tensor]:
    """The best subsets in order (instances, how_many, k) and their scores (instances, how_many).

    Best first over places in the sorted scores: each subset but the best has one better subset that
    is a step away, so a queue of the steps finds them in order.
    """
    count, (items, k) = scores.shape[0], layout
    parts = torch.full((count, how_many, k), -1)
    values = torch.full((count, how_many), -math.inf, dtype=torch.float64)
    inside = torch.arange(items) < sizes
    ranked, order = torch.where(inside, scores, -math.inf).sort(dim=1, descending=True, stable=True)
    for row in range(count):
        sorted_scores = ranked[row].tolist()
        size = sum(score > -math.inf for score in sorted_scores)
        first = tuple(range(k))
        queue = [(-math.fsum(sorted_scores[:k]), first)]
        seen = {first}
        for rank in range(how_many):
            if not queue:
                break
            cost, places = heapq.heappop(queue)
            parts[row, rank] = order[row, list(places)].sort().values
            values[row, rank] = -cost
            for i, place in enumerate(places):
                free = places[i + 1] if i + 1 < k else size
                moved = (*places[:i], place + 1, *places[i + 1 :])
                if place + 1 < free and moved not in seen:
                    seen.add(moved)
                    total = math.fsum(sorted_scores[j] for j in moved)
                    heapq.heappush(queue, (-total, moved))
    return parts, values
