"""Alignments in plain torch, one anti-diagonal of all instances after the other."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: The cells before a cell, as (rows, columns) back; the order in which ties are broken.
STEPS = ((1, 1), (1, 0), (0, 1))


def alignment_best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The best path of each instance from its first cell to its last."""
    m, n = layout
    values = alignment_values(scores, layout, "max", 1.0)
    instances = torch.arange(len(scores))
    i, j = sizes[:, 0] - 1, sizes[:, 1] - 1
    finite = values[instances, i, j] > -math.inf
    last = []
    while True:
        last.append(torch.where((i >= 0) & finite, i * n + j, -1))
        if bool(((i <= 0) & (j <= 0) | ~finite).all()):
            break
        before = torch.stack([_at(values, i - di, j - dj) for di, dj in STEPS])
        best = before.argmax(0)  # the first of equal ones
        over = (i <= 0) & (j <= 0)
        steps = torch.tensor(STEPS)[best]
        i = torch.where(over, -1, i - steps[:, 0])
        j = torch.where(over, -1, j - steps[:, 1])
    parts = torch.stack(last, 1).flip(1)
    # From the first cell on; what was -1 in front goes to the end.
    order = (parts < 0).long().sort(dim=1, stable=True).indices
    parts = parts.gather(1, order)
    full = torch.full((len(scores), m + n - 1), -1)
    full[:, : parts.shape[1]] = parts
    full[~finite, 0] = -2
    return full


def _at(values: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Entries (instances) of (instances, m, n), -inf outside."""
    inside = (i >= 0) & (j >= 0)
    found = values[torch.arange(len(values)), i.clamp(min=0), j.clamp(min=0)]
    return torch.where(inside, found, -math.inf)


def alignment_values(scores: Tensor, layout: tuple[int, ...], omega: str, gamma: float) -> Tensor:
    """The (smoothed) best score of all paths to each cell, (instances, m, n); differentiable.

    Args:
        scores: (instances, m * n); -inf cells are on no path.
        layout: m, n.
        omega: "max", or one of the smoothings.
        gamma: the strength of a smoothing.
    """
    m, n = layout
    table = scores.reshape(-1, m, n)
    diagonals: list[Tensor] = []
    for d in range(m + n - 1):
        i = torch.arange(max(0, d - n + 1), min(d, m - 1) + 1)
        here = table[:, i, d - i]
        if d > 0:
            before = [_before(diagonals, d, i, step, n) for step in STEPS]
            here = here + smoothed_max(torch.stack(before, -1), omega, gamma)
        diagonals.append(here)
    flat = torch.cat(diagonals, 1)
    i, j = torch.arange(m).unsqueeze(1), torch.arange(n)
    lengths = torch.tensor([x.shape[1] for x in diagonals])
    starts = lengths.cumsum(0) - lengths
    return flat[:, starts[i + j] + i - (i + j - n + 1).clamp(min=0)]


def _before(diagonals: list[Tensor], d: int, i: Tensor, step: tuple[int, int], n: int) -> Tensor:
    """For the cells of anti-diagonal ``d`` the values one step back, -inf outside."""
    back = d - step[0] - step[1]
    if back < 0:
        return diagonals[0].new_full((len(diagonals[0]), len(i)), -math.inf)
    values = diagonals[back]
    place = i - step[0] - max(0, back - n + 1)
    inside = (place >= 0) & (place < values.shape[1])
    found = values[:, place.clamp(0, values.shape[1] - 1)]
    return torch.where(inside, found, -math.inf)


def smoothed_max(x: Tensor, omega: str, gamma: float) -> Tensor:
    """The smoothed maximum over the last axis; -inf entries have no share, none at all: -inf."""
    top = x.detach().amax(-1, keepdim=True)
    if omega == "max":
        return x.amax(-1)
    known = torch.where(top == -math.inf, 0.0, top)
    # -inf entries are taken out before any arithmetic, so that no gradient meets inf * 0.
    there = x > -math.inf
    y = torch.where(there, x - known, 0.0) / gamma
    if omega == "entropy":
        total = torch.where(there, y.exp(), 0.0).sum(-1)
        some = there.any(-1)
        soft = known.squeeze(-1) + gamma * torch.where(some, total, 1.0).log()
    else:
        some = there.any(-1)
        p = _sparsemax(y, there)
        soft = known.squeeze(-1) + gamma * (p * y - 0.5 * p * p).sum(-1)
    return torch.where(some, soft, -math.inf)


def _sparsemax(y: Tensor, there: Tensor) -> Tensor:
    """Projection of the entries that are there onto the simplex, with the graph of its support."""
    ranked = torch.where(there, y, -math.inf).detach().sort(dim=-1, descending=True).values
    ranked = torch.where(ranked == -math.inf, -1e3, ranked)  # any score 1 below the first is out
    counts = torch.arange(1, y.shape[-1] + 1, dtype=y.dtype)
    in_support = 1 + counts * ranked > ranked.cumsum(-1)
    size = in_support.sum(-1, keepdim=True)
    least = ranked.gather(-1, size - 1)
    support = there & (y.detach() >= least)
    # Equal scores are in together, so the number of entries is the size found above.
    tau = (torch.where(support, y, 0.0).sum(-1, keepdim=True) - 1) / size
    return torch.where(support, y - tau, 0.0)
