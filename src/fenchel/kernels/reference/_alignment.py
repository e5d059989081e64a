"""Smoothed alignments in plain torch, one anti-diagonal of all instances after the other."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel.kernels.reference._smoothed import register_smoothed

#: The cells before a cell, as (rows, columns) back; in the order in which ties are broken.
STEPS = ((1, 1), (1, 0), (0, 1))


def alignment_max(
    scores: Tensor, layout: tuple[int, ...], sizes: Tensor, omega: str, gamma: float
) -> Tensor:
    """The smoothed maximum (instances) over the paths of each instance; differentiable."""
    values = alignment_values(scores, layout, omega, gamma)
    return values[torch.arange(len(values)), sizes[:, 0] - 1, sizes[:, 1] - 1]


def _with_corners(means: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """Every path has both corners: 1 without rounding, and a derivative of 0."""
    place = torch.arange(means.shape[1])
    corner = (place == 0) | (place == (sizes[:, :1] - 1) * layout[1] + sizes[:, 1:] - 1)
    return torch.where(corner, 1.0, means)


register_smoothed("alignment", alignment_max, _with_corners, divide=False)


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
            here = here + smoothed_max(before, omega, gamma)
        diagonals.append(here)
    i, j = torch.arange(m).unsqueeze(1), torch.arange(n)
    lengths = torch.tensor([x.shape[1] for x in diagonals])
    starts = lengths.cumsum(0) - lengths
    return torch.cat(diagonals, 1)[:, starts[i + j] + i - (i + j - n + 1).clamp(min=0)]


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


def smoothed_max(x: list[Tensor], omega: str, gamma: float) -> Tensor:
    """The smoothed maximum of three tensors; -inf has no share, and three of them give -inf."""
    top = torch.maximum(torch.maximum(x[0].detach(), x[1].detach()), x[2].detach())
    if omega == "max":
        return top
    some = top > -math.inf
    base = torch.where(some, top, 0.0)
    # -inf is taken out before any arithmetic, so that no gradient meets inf * 0.
    there = [a > -math.inf for a in x]
    y = [torch.where(t, a - base, 0.0) / gamma for a, t in zip(x, there, strict=True)]
    if omega == "entropy":
        e = [torch.where(t, a.exp(), 0.0) for a, t in zip(y, there, strict=True)]
        soft = torch.where(some, e[0] + e[1] + e[2], 1.0).log()
    else:
        p = _sparsemax(y, there)
        terms = [q * (a - 0.5 * q) for a, q in zip(y, p, strict=True)]
        soft = terms[0] + terms[1] + terms[2]
    return torch.where(some, base + gamma * soft, -math.inf)


def _sparsemax(y: list[Tensor], there: list[Tensor]) -> list[Tensor]:
    """Projection onto the simplex of the entries that are there; the largest is 0."""
    known = [torch.where(t, a.detach(), -2.0) for a, t in zip(y, there, strict=True)]
    # What is 1 below the largest has no share, so that -2 stands for all that is lower.
    ranked = torch.stack(known, -1).clamp(min=-2.0).sort(dim=-1, descending=True).values
    counts = torch.arange(1, 4, dtype=ranked.dtype)
    size = (1 + counts * ranked > ranked.cumsum(-1)).sum(-1)
    least = ranked.gather(-1, (size - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
    # Equal scores are in together, so that `size` entries are.
    support = [t & (a >= least) for a, t in zip(known, there, strict=True)]
    inside = [torch.where(s, a, 0.0) for a, s in zip(y, support, strict=True)]
    tau = (inside[0] + inside[1] + inside[2] - 1) / size.clamp(min=1)
    return [torch.where(s, a - tau, 0.0) for a, s in zip(y, support, strict=True)]
