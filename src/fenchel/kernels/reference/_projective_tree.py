"""Projective dependency trees in plain torch: the best tree and the sum over all of them.

What a head governs on one side is a row of children whose words are consecutive, each with what it
governs on its own two sides. This is the definition; no span is left open as in Eisner's algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fenchel._guarded import log_sum_exp
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._smoothed import register_smoothed

_Sum = Callable[[Tensor, int], Tensor]


@implements("oracle.projective_tree", REFERENCE)
def projective_tree_best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The best projective tree: the arcs that the maximum depends on."""
    n = layout[0]
    with torch.inference_mode(False), torch.enable_grad():
        known = scores.detach().clone().requires_grad_()
        best = _over_trees(known, layout, sizes, lambda x, dim: x.max(dim).values)
        feasible = best > -math.inf
        (used,) = torch.autograd.grad(torch.where(feasible, best, 0.0).sum(), known)
    out = torch.full((scores.shape[0], max(n, 1)), -1, dtype=torch.int64)
    for row in range(scores.shape[0]):
        if not bool(feasible[row]):
            out[row, 0] = -2
            continue
        parts = used[row].nonzero().squeeze(1)
        out[row, : len(parts)] = parts
    return out


def projective_tree_log_partition(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The log-partition (instances), ``-inf`` where there is no tree; differentiable."""
    return _over_trees(scores, layout, sizes, log_sum_exp)


def _over_trees(scores: Tensor, layout: tuple[int, ...], sizes: Tensor, total: _Sum) -> Tensor:
    n, single_root = layout
    arcs = scores.reshape(-1, n, n + 1)
    nothing = arcs.new_zeros(arcs.shape[0])
    # What token h governs from h + 1 to j, and from i to h - 1; token 0 is the root.
    right = {(h, h): nothing for h in range(n + 1)}
    left = {(h, h): nothing for h in range(n + 1)}

    def child(head: int, begin: int, end: int) -> Tensor:
        """A child of ``head`` somewhere in begin..end, with these words as all its subtree."""
        terms = [
            arcs[:, c - 1, head] + left[begin, c] + right[c, end] for c in range(begin, end + 1)
        ]
        return total(torch.stack(terms), 0)

    for width in range(1, n):
        for i in range(1, n + 1 - width):
            j = i + width
            ends = range(i, j)
            right[i, j] = total(torch.stack([right[i, k] + child(i, k + 1, j) for k in ends]), 0)
            left[i, j] = total(torch.stack([left[k + 1, j] + child(j, i, k) for k in ends]), 0)
    whole = []
    for end in range(1, n + 1):
        ends = range(1) if single_root else range(end)
        below = [right[0, k] + child(0, k + 1, end) for k in ends]
        right[0, end] = total(torch.stack(below), 0)
        whole.append(right[0, end])
    return torch.stack(whole, 1).gather(1, sizes - 1).squeeze(1)


register_smoothed(
    "projective_tree",
    lambda scores, layout, sizes, *_: projective_tree_log_partition(scores, layout, sizes),
)
