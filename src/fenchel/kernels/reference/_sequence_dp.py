"""Dynamic programs on chains in plain torch: loops over positions, with temperature 1.

Values can be differentiated any number of times; gradients are what autograd makes of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._guarded import finite, log_sum_exp
from fenchel.kernels._random import uniform
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._sequence import Blocks, sequence_parts, split
from fenchel.kernels.reference._smoothed import register_smoothed


def sequence_value(scores: Tensor, layout: tuple[int, ...], sizes: Tensor, omega: str) -> Tensor:
    """The smoothed maximum (instances); -inf where no sequence has a finite score."""
    node = _NODES[omega]
    messages, total = _messages(omega, split(scores, layout), sizes)
    return total + node(messages[-1])


register_smoothed(
    "sequence", lambda scores, layout, sizes, omega, _: sequence_value(scores, layout, sizes, omega)
)


@implements("sample.sequence", REFERENCE)
def sequence_sample(
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    n: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Forward filtering, backward sampling: parts (n, instances, longest)."""
    blocks = split(scores, layout)
    messages, _ = _messages("entropy", blocks, sizes)
    none = messages[-1].amax(1) == -math.inf
    paths = []
    for numbers in uniform((n, scores.shape[0], layout[0]), generator):
        tags: list[Tensor] = []
        for t in range(layout[0] - 1, -1, -1):
            x = messages[t]
            between = blocks.between(t) if tags else None
            if between is not None:
                column = between.gather(2, tags[-1][:, None, None].expand(-1, layout[1], 1))
                x = torch.where(t + 1 < sizes, x + column.squeeze(2), x)
            weights = torch.exp(x - finite(x.amax(1, keepdim=True)))
            bar = numbers[:, t : t + 1] * weights.sum(1, keepdim=True)
            beyond = (weights.cumsum(1) > bar) & (weights > 0)
            last = layout[1] - 1 - (weights.flip(1) > 0).long().argmax(1)
            tags.append(torch.where(beyond.any(1), beyond.long().argmax(1), last))
        parts = sequence_parts(torch.stack(tags[::-1], 1), layout, sizes)
        nothing = -2 + (torch.arange(parts.shape[1]) > 0).long()
        paths.append(torch.where(none[:, None], nothing, parts))
    return torch.stack(paths)


@implements("k_best.sequence", REFERENCE)
def sequence_k_best(
    scores: Tensor, layout: tuple[int, ...], sizes: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """k-best Viterbi: sorts all ways to a tag, which are K times k, and keeps the first k."""
    blocks = split(scores, layout)
    count, tags = scores.shape[0], layout[1]
    best = torch.full((count, tags, k), -math.inf, dtype=scores.dtype)
    best[:, :, 0] = _position(blocks, 0, sizes)
    back: list[Tensor] = []
    for t in range(1, layout[0]):
        between = blocks.between(t - 1)
        step = best.new_zeros(1, 1, 1, 1) if between is None else between.mT[:, :, :, None]
        ways = (best[:, None] + step).expand(count, tags, tags, k).reshape(count, tags, tags * k)
        top = ways.sort(dim=2, descending=True, stable=True)
        here = top.values[:, :, :k] + _position(blocks, t, sizes)[:, :, None]
        inside = (t < sizes)[:, :, None]
        stay = torch.arange(tags * k).reshape(tags, k).expand(count, tags, k)
        best = torch.where(inside, here, best)
        back.append(torch.where(inside, top.indices[:, :, :k], stay))
    top = best.reshape(count, tags * k).sort(dim=1, descending=True, stable=True)
    values, way = top.values[:, :k], top.indices[:, :k]
    path = [way // k]
    for pointer in reversed(back):
        way = pointer.reshape(count, tags * k).gather(1, way)
        path.append(way // k)
    lists = [
        sequence_parts(torch.stack([tag[:, rank] for tag in path[::-1]], 1), layout, sizes)
        for rank in range(k)
    ]
    parts = torch.stack(lists, 1)
    return torch.where(values[:, :, None] > -math.inf, parts, -1), values


def _messages(omega: str, blocks: Blocks, sizes: Tensor) -> tuple[list[Tensor], Tensor]:
    """Smoothed maxima over the ways to each tag, less a constant each; the constants' sum.

    Behind the length, messages stay what they were.
    """
    node = _NODES[omega]
    here = _position(blocks, 0, sizes)
    total = here.new_zeros(here.shape[0])
    messages: list[Tensor] = []
    for t in range(blocks.emissions.shape[1]):
        if t > 0:
            between = blocks.between(t - 1)
            before = messages[-1]
            if between is None:
                arrive = node(before).unsqueeze(1)
            else:
                arrive = node((before.unsqueeze(2) + between).mT)
            here = torch.where(t < sizes, arrive + _position(blocks, t, sizes), before)
        # Only differences count from here on: small numbers are exact ones.
        top = finite(here.detach().amax(1))
        total = total + top
        messages.append(here - top.unsqueeze(1))
    return messages, total


def _position(blocks: Blocks, t: int, sizes: Tensor) -> Tensor:
    """Scores (instances, K) of one position, with those of start and end where they count."""
    here = blocks.emissions[:, t]
    if t == 0 and blocks.start is not None:
        here = here + blocks.start
    if blocks.end is not None:
        here = torch.where(sizes == t + 1, here + blocks.end, here)
    return here


def max_l2(x: Tensor) -> Tensor:
    """max over p in the simplex of <p, x> - |p|^2 / 2 over the last axis."""
    top = finite(x.detach().amax(-1))
    x = x - top.unsqueeze(-1)
    down = x.detach().sort(dim=-1, descending=True).values
    rank = torch.arange(1, x.shape[-1] + 1)
    count = (1 + rank * down > down.cumsum(-1)).sum(-1, keepdim=True)
    alive = count > 0
    least = down.gather(-1, (count - 1).clamp(min=0))
    support = (x.detach() >= least) & alive
    inside = torch.where(support, x, 0.0)
    threshold = (inside.sum(-1, keepdim=True) - 1) / count.clamp(min=1)
    p = torch.where(support, inside - threshold, 0.0)
    value = top + (p * inside - 0.5 * p * p).sum(-1)
    return torch.where(alive.squeeze(-1), value, -math.inf)


_NODES = {"entropy": log_sum_exp, "l2": max_l2}
