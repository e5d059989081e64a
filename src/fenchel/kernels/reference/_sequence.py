"""Linear chains in plain torch: a loop over positions, differentiable any number of times.

Scores are flat (instances, parts): emissions (T, K), transitions [from, to], start (K), end (K),
as the layout (T, K, kind of transitions, has start, has end) says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel.kernels._table import REFERENCE, implements

NONE, SHARED, EACH_POSITION = 0, 1, 2  # kinds of transitions


@dataclass(frozen=True)
class Blocks:
    """The blocks of the flat scores; transitions are (instances, 1 or T-1, K, K)."""

    emissions: Tensor
    transitions: Tensor | None
    start: Tensor | None
    end: Tensor | None

    def between(self, t: int) -> Tensor | None:
        """Transitions (instances, K, K) from position t to t + 1."""
        if self.transitions is None:
            return None
        return self.transitions[:, t if self.transitions.shape[1] > 1 else 0]


def split(flat: Tensor, layout: tuple[int, ...]) -> Blocks:
    """Views of the blocks of flat scores (instances, parts)."""
    positions, tags, kind, has_start, has_end = layout
    squares = (0, 1, positions - 1)[kind]
    sizes = [positions * tags, squares * tags**2, has_start * tags, has_end * tags]
    emissions, transitions, start, end = flat.split(sizes, 1)
    return Blocks(
        emissions.reshape(-1, positions, tags),
        transitions.reshape(flat.shape[0], squares, tags, tags) if squares else None,
        start if has_start else None,
        end if has_end else None,
    )


def sequence_parts(path: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """Tags (instances, T) as lists of parts (instances, longest); behind the length they are -1."""
    positions, tags, kind, has_start, has_end = layout
    at = torch.arange(positions)
    inside = at < sizes
    path = torch.where(inside, path, 0)
    lists = [torch.where(inside, at * tags + path, -1)]
    offset = positions * tags
    if kind != NONE:
        squares = at[:-1] * (tags**2 if kind == EACH_POSITION else 0)
        pairs = offset + squares + path[:, :-1] * tags + path[:, 1:]
        lists.append(torch.where(inside[:, 1:], pairs, -1))
        offset += tags**2 * (1 if kind == SHARED else positions - 1)
    if has_start:
        lists.append(offset + path[:, :1])
        offset += tags
    if has_end:
        lists.append(offset + path.gather(1, sizes - 1))
    parts = torch.cat(lists, 1)
    if bool(inside.all()):
        return parts
    return parts.gather(1, (parts < 0).long().argsort(dim=1, stable=True))  # -1 behind the others


@implements("oracle.sequence", REFERENCE)
def sequence_best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """Viterbi with pointers back; the lowest tag on ties."""
    blocks = split(scores, layout)
    best, back = blocks.emissions[:, 0], []
    if blocks.start is not None:
        best = blocks.start + best
    if blocks.end is not None:
        best = torch.where(sizes == 1, best + blocks.end, best)
    highest = best.amax(1, keepdim=True)
    stay = torch.arange(layout[1]).expand(best.shape)
    for t in range(1, layout[0]):
        between = blocks.between(t - 1)
        if between is None:  # positions do not know of each other
            here, pointer = blocks.emissions[:, t], best.argmax(1, keepdim=True).expand(best.shape)
        else:
            reach = best.unsqueeze(2) + between
            here, pointer = reach.amax(1) + blocks.emissions[:, t], reach.argmax(1)
        if blocks.end is not None:
            here = torch.where(sizes == t + 1, here + blocks.end, here)
        inside = t < sizes
        best = torch.where(inside, here, best)
        highest = torch.minimum(highest, best.amax(1, keepdim=True))
        back.append(torch.where(inside, pointer, stay))
    path = [best.argmax(1, keepdim=True)]
    for pointer in reversed(back):
        path.append(pointer.gather(1, path[-1]))
    parts = sequence_parts(torch.cat(path[::-1], 1), layout, sizes)
    nothing = -2 + (torch.arange(parts.shape[1]) > 0).long()
    return torch.where(highest > -math.inf, parts, nothing)
