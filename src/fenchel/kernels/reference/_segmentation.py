"""Labelled segments in plain torch: one loop over the positions for sums, the best, draws, lists.

Scores are flat (instances, parts): segments (T, L, K), by first position, length less 1 and label,
and transitions [from, to] of labels, as the layout (T, L, K, has transitions) says.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fenchel._guarded import log_sum_exp
from fenchel.kernels._random import uniform
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._sequence_dp import max_l2
from fenchel.kernels.reference._smoothed import register_smoothed

Layout = tuple[int, ...]
#: (*any, ways) to a number, or to the place, of each row of ways.
Node = Callable[[Tensor], Tensor]


def split(scores: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Segments (instances, T, L, K), and transitions (instances, K, K), 0 if there are none."""
    positions, longest, labels, has_transitions = layout
    cut = positions * longest * labels
    segments = scores[:, :cut].reshape(-1, positions, longest, labels)
    if not has_transitions:
        return segments, scores.new_zeros(scores.shape[0], labels, labels)
    return segments, scores[:, cut:].reshape(-1, labels, labels)


def messages(
    scores: Tensor, layout: Layout, node: Node, nested: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """For each position, over all that ends before it, and over all ways to go on from there.

    Both are (instances, K, ...): by the last label, and (with an axis of ways) by the label that
    follows. A segment chooses its length and the label before it at once. Where the node is
    associative, the labels may be ``nested`` in the lengths: L + K ways instead of L times K.
    """
    segments, transitions = split(scores, layout)
    nothing = scores.new_zeros(scores.shape[0], layout[2])
    ended, before = [nothing], [nothing.unsqueeze(2)]
    for end in range(1, layout[0] + 1):
        ways = [
            segments[:, end - size, size - 1].unsqueeze(2) + before[end - size]
            for size in range(1, min(layout[1], end) + 1)
        ]
        # What ends before position 1 is one segment: nothing is chosen.
        ended.append(ways[0].squeeze(2) if end == 1 else node(torch.cat(ways, 2)))
        reach = (ended[-1].unsqueeze(2) + transitions).mT
        before.append(node(reach).unsqueeze(2) if nested else reach)
    return ended, before


def segmentation_value(
    scores: Tensor, layout: Layout, sizes: Tensor, omega: str, gamma: float
) -> Tensor:
    """The smoothed maximum (instances) at gamma 1; -inf where nothing has a finite score."""
    node = {"entropy": log_sum_exp, "l2": max_l2}[omega]
    ended, _ = messages(scores, layout, node, nested=omega == "entropy")
    rows, last = torch.arange(len(scores)), sizes[:, 0].clone()  # sizes may be of inference mode
    return node(torch.stack(ended, 1)[rows, last])


register_smoothed("segmentation", segmentation_value, alone=True)


@implements("oracle.segmentation", REFERENCE)
def segmentation_best_parts(scores: Tensor, layout: Layout, sizes: Tensor) -> Tensor:
    """On ties the lowest last label, then the shortest segments, then the lowest labels."""
    ended, before = messages(scores, layout, lambda x: x.amax(-1), nested=True)
    rows = torch.arange(scores.shape[0])
    return _walk(scores, layout, sizes, ended, before, rows, lambda x: x.argmax(-1))


@implements("sample.segmentation", REFERENCE, alone=True)
def segmentation_samples(
    scores: Tensor, layout: Layout, sizes: Tensor, n: int, generator: torch.Generator | None
) -> Tensor:
    """From the last segment back, each by its share in the sum of all that may come before."""
    ended, before = messages(scores, layout, log_sum_exp, nested=True)

    def choose(x: Tensor) -> Tensor:
        shares = (x - x.amax(-1, keepdim=True)).exp().cumsum(-1)
        bar = uniform(tuple(x.shape[:-1]), generator).unsqueeze(-1) * shares[..., -1:]
        return (bar >= shares[..., :-1]).sum(-1)  # below the last: one without a share is passed

    rows = torch.arange(scores.shape[0]).repeat(n)
    parts = _walk(scores, layout, sizes, ended, before, rows, choose)
    return parts.reshape(n, scores.shape[0], parts.shape[1])


def _walk(
    scores: Tensor,
    layout: Layout,
    sizes: Tensor,
    ended: list[Tensor],
    before: list[Tensor],
    rows: Tensor,
    choose: Node,
) -> Tensor:
    """Lists of parts (walkers, longest) of the instances ``rows``, from the last segment back.

    Those who have arrived, and those who cannot start, choose among zeros, which counts nowhere.
    """
    positions, longest, labels, has_transitions = layout
    parts = torch.full((len(rows), _most_parts(layout)), -1)
    if len(rows) == 0:
        return parts
    segments, transitions = split(scores, layout)
    to_end, to_label = torch.stack(ended, 1), torch.cat(before, 2).mT  # (instances, T + 1, K)
    end = sizes[rows, 0]
    last = to_end[rows, end]
    none = (last == -math.inf).all(1)
    label = choose(last.masked_fill(none.unsqueeze(1), 0.0))
    size = torch.arange(1, longest + 1)
    for step in range(positions):
        live = (end > 0) & ~none
        begin = end.unsqueeze(1) - size  # of a segment of each length
        at = rows.unsqueeze(1), begin.clamp(min=0)
        ways = segments[(*at, size - 1, label.unsqueeze(1))] + to_label[(*at, label.unsqueeze(1))]
        ways = ways.masked_fill(begin < 0, -math.inf).masked_fill(~live.unsqueeze(1), 0.0)
        chosen = choose(ways)
        start = end - chosen - 1
        part = (start * longest + chosen) * labels + label
        parts[:, step] = torch.where(live, part, -1)
        end = torch.where(live, start, 0)
        onward = live & (end > 0)
        reach = to_end[rows, end] + transitions[rows, :, label]
        previous = choose(reach.masked_fill(~onward.unsqueeze(1), 0.0))
        if has_transitions and step < positions - 1:
            pair = positions * longest * labels + previous * labels + label
            parts[:, positions + step] = torch.where(onward, pair, -1)
        label = torch.where(onward, previous, label)
    return _finished(parts, none)


@implements("k_best.segmentation", REFERENCE, alone=True)
def segmentation_k_best(
    scores: Tensor, layout: Layout, sizes: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """k-best Viterbi: sorts all ways to end with a label, L times K times k, and keeps k."""
    positions, longest, labels, has_transitions = layout
    segments, transitions = split(scores, layout)
    count, width = scores.shape[0], labels * k
    first = scores.new_full((count, labels, width), -math.inf)
    first[:, :, 0] = 0.0
    before, best, back = [first], [scores.new_zeros(count, labels, k)], [torch.empty(0)]
    for end in range(1, positions + 1):
        ways = [
            segments[:, end - size, size - 1].unsqueeze(2) + before[end - size]
            for size in range(1, min(longest, end) + 1)
        ]
        top = torch.cat(ways, 2).sort(dim=2, descending=True, stable=True)
        best.append(top.values[:, :, :k])
        back.append(top.indices[:, :, :k])
        reach = best[-1].unsqueeze(1) + transitions.mT.unsqueeze(3)  # [to, from, rank]
        before.append(reach.reshape(count, labels, width))
    every, pointers = torch.stack(best, 1), torch.stack([back[1], *back[1:]], 1)
    rows = torch.arange(count).unsqueeze(1)
    last = every[rows.squeeze(1), sizes[:, 0]].reshape(count, width)
    top = last.sort(dim=1, descending=True, stable=True)
    values, way = top.values[:, :k], top.indices[:, :k]
    parts = torch.full((count, k, _most_parts(layout)), -1)
    ends, label, rank = sizes.expand(count, k), way // k, way % k
    there = values > -math.inf
    for step in range(positions):
        live = there & (ends > 0)
        pointer = pointers[rows, ends, label, rank]
        chosen, previous = pointer // width, pointer % width // k
        start = ends - chosen - 1
        part = (start * longest + chosen) * labels + label
        parts[:, :, step] = torch.where(live, part, -1)
        onward = live & (start > 0)
        if has_transitions and step < positions - 1:
            pair = positions * longest * labels + previous * labels + label
            parts[:, :, positions + step] = torch.where(onward, pair, -1)
        ends = torch.where(live, start, 0)
        label = torch.where(onward, previous, label)
        rank = torch.where(onward, pointer % k, rank)
    return _finished(parts, torch.zeros(count, k, dtype=torch.bool)), values


def _most_parts(layout: Layout) -> int:
    return layout[0] + (layout[0] - 1) * layout[3]


def _finished(parts: Tensor, none: Tensor) -> Tensor:
    """Lists in order, -1 behind them, and -2 first where there is no member."""
    behind = torch.iinfo(parts.dtype).max
    parts = torch.where(parts < 0, behind, parts).sort(dim=-1).values
    parts = torch.where(parts == behind, -1, parts)
    parts[..., 0] = torch.where(none, -2, parts[..., 0])
    return parts
