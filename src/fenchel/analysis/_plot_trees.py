from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int
from fenchel.analysis._drawing import INK, PALETTE, axes_of, bare, check_mean, check_names, written
from fenchel.solvers import SparseDistribution

_NAME = "plot_trees"
_DASHES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)))


def plot_trees(
    arcs: Tensor | SparseDistribution,
    words: Sequence[str] | None = None,
    *,
    instance: int = 0,
    label_from: float = 0.05,
    ax: Any = None,
) -> Any:
    """Draw a mean dependency tree, or a few trees with weights, as arcs above a sentence.

    An arrow goes from the head to the word; one from above is from the root. Its width is its
    weight. An arc whose weight is exactly 0 is not there.

    Args:
        arcs: means (n, n + 1), row = word, column = head, column 0 the root, as
            ``predict`` of a :class:`fenchel.DependencyTree` gives them: every arc is drawn once,
            in blue and with its weight (dark if that is 1). Or what ``SparseMAP(...).solve``
            gives: each tree has a colour and an entry in the legend, arcs that all trees share are
            dark.
        words: names of the words; by default their numbers, from 1.
        instance: which instance of a :class:`fenchel.solvers.SparseDistribution`; its batch counts
            as flat.
        label_from: weights from here on are written on the arcs of a mean.
        ax: matplotlib axes to draw on; by default those of a new figure.

    Returns:
        The matplotlib axes.

    Example:
        >>> from fenchel.analysis import plot_trees
        >>> scores = torch.tensor([[0.0, 0.0, 2.0], [2.0, 0.0, 0.0]])
        >>> axes = plot_trees(fy.SparseMAP(fy.DependencyTree()).predict(scores), ["big", "dogs"])
        >>> [text.get_text() for text in axes.texts]
        ['big', 'dogs', 'root', '1', '1']
    """
    trees: list[dict[tuple[int, int], float]] = []
    if isinstance(arcs, SparseDistribution):
        values, trees = _distribution(arcs, instance)
    else:
        values = check_mean(_NAME, arcs, "(n, n + 1)", "arcs")
        if values.shape[1] != values.shape[0] + 1:
            raise FenchelError(
                f"{_NAME}: expected `arcs` of shape (n, n + 1), a row a word and a column a head "
                f"with the root first, but got {tuple(values.shape)}."
            )
    n = int((values.sum(1) > 0).sum())  # words behind the length have no arcs
    check_names(_NAME, "words", words, n)
    axes = axes_of(_NAME, ax, (max(4.0, 1.1 * n), 3.0))
    weights = {
        (int(h), int(m)): float(values[m, h]) for m, h in values.nonzero() if int(m) < n
    }  # (head, word from 0)
    top = _draw_words(axes, words or [str(m + 1) for m in range(n)], weights)
    if trees:
        _draw_trees(axes, weights, trees, top)
    else:
        for (h, m), weight in weights.items():
            colour = INK if weight > 1 - 1e-9 else PALETTE[0]
            peak = _arc(axes, h, m, top, 0.0, colour, "solid", 0.4 + 2.0 * weight)
            if weight >= label_from:
                _write(axes, peak, written(round(weight, 9)), colour)
    return axes


def _distribution(
    answer: SparseDistribution, instance: int
) -> tuple[Tensor, list[dict[tuple[int, int], float]]]:
    """Means (n, n + 1), and the trees: the weight of each arc (head, word)."""
    lists = answer.structures.reshape(-1, *answer.structures.shape[-2:])
    weights = answer.weights.detach().cpu().reshape(len(lists), -1)
    if not 0 <= check_int(_NAME, "instance", instance) < len(lists):
        raise FenchelError(
            f"{_NAME}: expected `instance` from 0 to {len(lists) - 1}, but got {instance}."
        )
    flat = answer.means.detach().cpu().double().reshape(len(lists), -1)
    parts = flat.shape[1]
    n = math.isqrt(parts)
    if parts != n * (n + 1):
        raise FenchelError(
            f"{_NAME}: expected the answer of a DependencyTree, with n (n + 1) parts, but got "
            f"{parts} parts."
        )
    trees = []
    for members, weight in zip(lists[instance], weights[instance].tolist(), strict=True):
        if weight > 0:
            inside = members[members >= 0].tolist()
            trees.append({(p % (n + 1), p // (n + 1)): weight for p in inside})
    trees.sort(key=lambda tree: -next(iter(tree.values())))
    means = flat[instance].reshape(n, n + 1)
    used = torch.zeros(n, n + 1, dtype=torch.bool)
    for tree in trees:
        for h, m in tree:
            used[m, h] = True
    return torch.where(used, means, 0.0), trees


def _draw_words(axes: Any, words: Sequence[str], weights: dict[tuple[int, int], float]) -> float:
    """Names below the arcs, and room for these; returns where arrows from the root begin."""
    for m, word in enumerate(words):
        axes.text(m, -0.08, word, ha="center", va="top", color=INK)
    longest = max([abs(h - 1 - m) for h, m in weights if h > 0], default=1)
    top = 0.75 * _height(longest) + 0.5
    for m in sorted({m for h, m in weights if h == 0}):
        axes.text(m, top + 0.03, "root", ha="center", va="bottom", color="#777777", fontsize=8.5)
    axes.set_xlim(-0.6, len(words) - 0.4)
    axes.set_ylim(-0.5, top + 0.3)
    bare(axes)
    return top


def _draw_trees(
    axes: Any,
    weights: dict[tuple[int, int], float],
    trees: list[dict[tuple[int, int], float]],
    top: float,
) -> None:
    """Arcs of all trees once and dark; others beside each other, one for each tree."""
    from matplotlib.lines import Line2D

    looks = [
        (PALETTE[i % len(PALETTE)], _DASHES[i // len(PALETTE) % len(_DASHES)])
        for i in range(len(trees))
    ]
    for h, m in weights:
        users = [i for i, tree in enumerate(trees) if (h, m) in tree]
        if len(users) == len(trees):
            _arc(axes, h, m, top, 0.0, INK, "solid", 2.4)
            continue
        for place, i in enumerate(users):
            colour, dashes = looks[i]
            _arc(axes, h, m, top, 0.16 * place, colour, dashes, 0.8 + 3.0 * trees[i][h, m])
    handles = [
        Line2D(
            [],
            [],
            color=colour,
            linestyle=dashes,
            linewidth=0.8 + 3.0 * next(iter(tree.values())),
            label=f"tree {i + 1}: {written(round(next(iter(tree.values())), 9))}",
        )
        for i, ((colour, dashes), tree) in enumerate(zip(looks, trees, strict=True))
    ]
    if len(trees) > 1:
        handles.append(Line2D([], [], color=INK, linewidth=2.4, label="in all trees"))
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.04), ncols=2, frameon=False
    )


def _height(distance: int) -> float:
    """How high the controls of an arc are; the arc has three quarters of it."""
    return 0.35 + 0.45 * distance


def _arc(
    axes: Any,
    head: int,
    word: int,
    top: float,
    raised: float,
    colour: str,
    dashes: Any,
    width: float,
) -> tuple[float, float]:
    """An arrow from the head (0 is the root) to the word; returns its highest point."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    if head == 0:
        x = word + 0.4 * raised
        path = Path([(x, top), (x, 0.0)])
        peak = (x, 0.78 * top)
    else:
        side = 1 if word > head - 1 else -1
        start = head - 1 + side * (0.2 + 0.4 * raised)
        end = word - side * (0.03 + 0.4 * raised)
        high = _height(abs(word - head + 1)) + raised
        path = Path([(start, 0.0), (start, high), (end, high), (end, 0.0)], [1, 4, 4, 4])
        peak = ((start + end) / 2, 0.75 * high)
    arrow = FancyArrowPatch(
        path=path,
        arrowstyle="-|>",
        mutation_scale=6 + 2 * width,
        shrinkA=0,
        shrinkB=0,
        color=colour,
        linestyle=dashes,
        linewidth=width,
        alpha=min(1.0, 0.35 + 0.5 * width),
        capstyle="butt",
    )
    arrow.set_gid(f"{head}->{word + 1}")
    axes.add_patch(arrow)
    return peak


def _write(axes: Any, place: tuple[float, float], text: str, colour: str) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axes.text(*place, text, ha="center", va="center", fontsize=8, color=colour, bbox=box)
