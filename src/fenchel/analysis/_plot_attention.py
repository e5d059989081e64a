from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.analysis._drawing import axes_of, check_matrix, check_names, shades

_NAME = "plot_attention"
_MARKERS = "ovsPD^X*"


def plot_attention(
    weights: Tensor,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    groups: Tensor | None = None,
    top: float | None = None,
    ax: Any = None,
    cmap: str = "Blues",
) -> Any:
    """Draw a matrix of sparse attention weights.

    Grey is exactly 0; colour is weight. Keys that a query fuses are one: no border stands between
    neighbours of one group, and a group whose members stand apart gets a marker of its own in that
    row.

    Args:
        weights: shape (queries, keys), or one row; probabilities.
        queries: names of the rows.
        keys: names of the columns.
        groups: which keys each query fuses, integers of the shape of ``weights`` (equal numbers in
            a row are one group); by default, nonzero weights that are equal.
        top: the weight of the darkest colour; by default the largest one of the matrix.
        ax: matplotlib axes to draw on; by default those of a new figure.
        cmap: matplotlib's name for the colours.

    Returns:
        The matplotlib axes.

    Example:
        >>> from fenchel.analysis import plot_attention
        >>> scores = torch.tensor([[1.0, 0.9, 0.0, -2.0], [0.0, 0.1, 1.0, 0.9]])
        >>> axes = plot_attention(fy.fusedmax(scores), ["a", "b"], ["w", "x", "y", "z"])
        >>> len(axes.texts)
        0
    """
    axes = axes_of(_NAME, ax)
    values = check_matrix(_NAME, weights, "(queries, keys)", row=True)
    rows, columns = values.shape
    fused = _check_groups(groups, values)
    check_names(_NAME, "queries", queries, rows)
    check_names(_NAME, "keys", keys, columns)
    from matplotlib.patches import Rectangle

    top = float(values.max()) if top is None else top
    colours = shades(values, cmap, top)
    for i in range(rows):
        for j in range(columns):
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=colours[i, j], edgecolor="none"))
        _borders(axes, i, fused[i], values[i])
        _mark_scattered(axes, i, fused[i], values[i], top)
    for i in range(rows + 1):
        axes.plot([0, columns], [i, i], color="white", linewidth=1.5)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_aspect("equal")
    axes.set_xticks([j + 0.5 for j in range(columns)], keys or range(columns))
    axes.set_yticks([i + 0.5 for i in range(rows)], queries or range(rows))
    if keys:
        for name in axes.get_xticklabels():
            name.set(rotation=60, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _borders(axes: Any, row: int, group: Tensor, values: Tensor) -> None:
    """A line between neighbours, except those of one group with weight."""
    for j in range(1, len(group)):
        if group[j] != group[j - 1] or values[j] == 0:
            axes.plot([j, j], [row, row + 1], color="white", linewidth=1.5)


def _mark_scattered(axes: Any, row: int, group: Tensor, values: Tensor, top: float) -> None:
    """One marker for each group whose members do not all stand side by side."""
    marked = 0
    for number in group[values != 0].unique().tolist():
        places = ((group == number) & (values != 0)).nonzero()[:, 0]
        if len(places) < 2 or int(places[-1] - places[0]) == len(places) - 1:
            continue
        dark = float(values[places[0]]) > 0.6 * top
        axes.plot(
            places + 0.5,
            [row + 0.5] * len(places),
            linestyle="none",
            marker=_MARKERS[marked % len(_MARKERS)],
            color="white" if dark else "#333333",
            markersize=5,
        )
        marked += 1


def _check_groups(groups: Any, values: Tensor) -> Tensor:
    if groups is None:
        places = torch.arange(values.shape[1])
        same = (values[:, :, None] == values[:, None, :]) & (values[:, :, None] != 0)
        first = same.long().argmax(-1)  # the first key of the same weight
        return torch.where(values == 0, places, first)
    if not isinstance(groups, Tensor) or groups.is_floating_point():
        raise FenchelError("plot_attention: expected `groups` to be an integer tensor.")
    numbers = groups.detach().cpu()
    numbers = numbers[None] if numbers.dim() == 1 else numbers
    if numbers.shape != values.shape:
        raise FenchelError(
            f"plot_attention: expected `groups` of the shape of `weights` {tuple(values.shape)}, "
            f"but got {tuple(groups.shape)}."
        )
    return numbers
