"""Dependency trees in plain torch and Python: the best tree and the sum over all of them.

Scores are (instances, n * (n + 1)): word by word, the score of each head, 0 being the root and
j + 1 word j. A layout is (n, single root), a size the number of words that are there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._guarded import log_sum_exp
from fenchel.kernels._table import REFERENCE, implements
from fenchel.kernels.reference._smoothed import register_smoothed


@implements("oracle.tree", REFERENCE)
def tree_best_parts(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The best tree; one root exactly by trying every word as the only one."""
    n, single_root = layout
    out = torch.full((scores.shape[0], max(n, 1)), -1, dtype=torch.int64)
    for row, (matrix, size) in enumerate(zip(scores.reshape(-1, n, n + 1), sizes, strict=True)):
        words = int(size)
        arcs: dict[tuple[int, int], float] = {
            (head, word + 1): float(matrix[word, head])
            for word in range(words)
            for head in range(words + 1)
            if head != word + 1 and float(matrix[word, head]) > -math.inf
        }
        tries = [arcs]
        if single_root:
            tries = [
                {arc: score for arc, score in arcs.items() if arc[0] > 0 or arc[1] == root}
                for root in range(1, words + 1)
            ]
        trees = [tree for tree in (_best_tree(words, arcs) for arcs in tries) if tree is not None]
        if not trees:
            out[row, 0] = -2
            continue
        best = max(trees, key=lambda tree: sum(arcs[head, word] for word, head in tree.items()))
        for word, head in best.items():
            out[row, word - 1] = (word - 1) * (n + 1) + head
    return out


def _best_tree(words: int, arcs: dict[tuple[int, int], float]) -> dict[int, int] | None:
    """The best tree on nodes 1 to ``words`` below 0, as word -> head (Chu & Liu, Edmonds)."""
    return _contract(set(range(1, words + 1)), arcs, words + 1)


def _contract(
    nodes: set[int], arcs: dict[tuple[int, int], float], fresh: int
) -> dict[int, int] | None:
    heads: dict[int, int] = {}
    for node in sorted(nodes):
        into = [(score, -head) for (head, to), score in arcs.items() if to == node]
        if not into:
            return None
        heads[node] = -max(into)[1]
    cycle = _cycle(heads)
    if cycle is None:
        return heads
    outside: dict[tuple[int, int], float] = {}
    origin: dict[tuple[int, int], tuple[int, int]] = {}
    for (head, to), score in arcs.items():
        if head in cycle and to in cycle:
            continue
        arc = (fresh if head in cycle else head, fresh if to in cycle else to)
        value = score - arcs[heads[to], to] if to in cycle else score
        if arc not in outside or value > outside[arc]:
            outside[arc], origin[arc] = value, (head, to)
    tree = _contract((nodes - cycle) | {fresh}, outside, fresh + 1)
    if tree is None:
        return None
    entry = origin[tree[fresh], fresh]
    whole = {node: heads[node] for node in cycle}
    for node, head in tree.items():
        if node != fresh:
            whole[node] = origin[head, node][0]
    whole[entry[1]] = entry[0]
    return whole


def _cycle(heads: dict[int, int]) -> set[int] | None:
    for start in heads:
        seen: list[int] = []
        node = start
        while node in heads and node not in seen:
            seen.append(node)
            node = heads[node]
        if node in seen:
            return set(seen[seen.index(node) :])
    return None


def tree_log_partition(scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The log-partition (instances), ``-inf`` where there is no tree; differentiable.

    The determinant of the matrix-tree theorem by elimination in the log domain; with a single root,
    the sum over the word that it is.
    """
    n, single_root = layout
    words = torch.arange(n)
    inside = words < sizes  # (instances, n)
    arcs = inside.unsqueeze(2) & (torch.arange(n + 1) <= sizes).unsqueeze(1)
    arcs &= torch.arange(n + 1) != words.unsqueeze(1) + 1
    known = torch.where(arcs, scores.reshape(-1, n, n + 1), -math.inf)
    if not single_root:
        return _eliminated(_padded(known, inside))
    # (instances, which word is the root, n, n + 1)
    chosen = torch.eye(n, dtype=torch.bool).unsqueeze(2)
    at_root = torch.arange(n + 1) == 0
    each = torch.where(chosen == at_root, known.unsqueeze(1), -math.inf)
    whole = _eliminated(_padded(each, inside.unsqueeze(1)))
    return log_sum_exp(torch.where(inside, whole, -math.inf), 1)


def _padded(arcs: Tensor, inside: Tensor) -> Tensor:
    """Padding as words that hang on the root with score 0 and head nothing."""
    only_root = torch.where(torch.arange(arcs.shape[-1]) == 0, 0.0, -math.inf)
    return torch.where(inside.unsqueeze(-1), arcs, only_root.to(arcs.dtype))


def _eliminated(arcs: Tensor) -> Tensor:
    total = arcs.new_zeros(arcs.shape[:-2])
    for k in range(arcs.shape[-2] - 1, -1, -1):
        row = arcs[..., k, : k + 1]
        pivot = log_sum_exp(row, -1)
        total = total + pivot
        share = row - torch.where(pivot > -math.inf, pivot, 0.0).unsqueeze(-1)
        through = arcs[..., :k, k + 1].unsqueeze(-1) + share.unsqueeze(-2)
        through = torch.where(
            torch.arange(k + 1) == torch.arange(k).unsqueeze(1) + 1, -math.inf, through
        )
        arcs = log_sum_exp(torch.stack((arcs[..., :k, : k + 1], through)), 0)
    return torch.where(total > -math.inf, total, -math.inf)  # no tree: no gradient


register_smoothed(
    "tree", lambda scores, layout, sizes, *_: tree_log_partition(scores, layout, sizes)
)
