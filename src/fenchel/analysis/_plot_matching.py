from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fenchel.analysis._drawing import INK, PALETTE, axes_of, bare, check_mean, check_names, written

_NAME = "plot_matching"


def plot_matching(
    weights: Tensor,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    label_from: float = 0.1,
    ax: Any = None,
) -> Any:
    """Draw a mean assignment as lines between two lists of names.

    A line's width is its weight; it is dark if the pair is certain. A pair whose weight is exactly
    0 has no line, and a name without any line is grey.

    Args:
        weights: means (rows, columns), as ``predict`` of a :class:`fenchel.Assignment` gives them,
            or a plan of :func:`fenchel.sinkhorn`.
        rows: names of the rows, drawn on the left from the top down.
        columns: names of the columns, on the right.
        label_from: weights from here on are written on their lines, except those of 1.
        ax: matplotlib axes to draw on; by default those of a new figure.

    Returns:
        The matplotlib axes.

    Example:
        >>> from fenchel.analysis import plot_matching
        >>> mean = fy.SparseMAP(fy.Assignment()).predict(torch.tensor([[1.0, 0.8], [0.9, 0.9]]))
        >>> axes = plot_matching(mean, ["a", "b"], ["x", "y"])
        >>> len(axes.lines)
        4
    """
    values = check_mean(_NAME, weights, "(rows, columns)")
    n, m = values.shape
    check_names(_NAME, "rows", rows, n)
    check_names(_NAME, "columns", columns, m)
    axes = axes_of(_NAME, ax, (4.0, 0.6 + 0.45 * max(n, m)))
    tall = max(n, m, 2) - 1
    left, right = _spread(n, tall), _spread(m, tall)
    for i, j in values.nonzero().tolist():
        weight = float(values[i, j])
        sure = weight > 1 - 1e-9
        (line,) = axes.plot(
            [0, 1],
            [left[i], right[j]],
            color=INK if sure else PALETTE[0],
            linewidth=0.4 + 2.6 * min(weight, 1.0),
            solid_capstyle="round",
            zorder=1 + weight,
        )
        line.set_gid(f"{i}-{j}")
        if weight >= label_from and not sure:
            _label(axes, left[i], right[j], weight)
    names = [(0, left, rows, values.sum(1)), (1, right, columns, values.sum(0))]
    for side, places, labels, sums in names:
        for number, (y, mass) in enumerate(zip(places, sums.tolist(), strict=True)):
            axes.text(
                -0.04 if side == 0 else 1.04,
                y,
                labels[number] if labels is not None else str(number),
                ha="right" if side == 0 else "left",
                va="center",
                color=INK if mass > 0 else "#a6a6a6",
            )
    axes.set_xlim(-0.35, 1.35)
    axes.set_ylim(tall + 0.5, -0.5)
    bare(axes)
    return axes


def _spread(count: int, tall: float) -> list[float]:
    """Heights of names, the shorter list in the middle of the longer one."""
    return [i + (tall - (count - 1)) / 2 for i in range(count)]


def _label(axes: Any, start: float, end: float, weight: float) -> None:
    """Near the left, where lines from one name have parted and those of others are far."""
    at = 0.17
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.text(
        at,
        start + at * (end - start),
        written(round(weight, 9)),
        ha="center",
        va="center",
        fontsize=8,
        color=PALETTE[0],
        bbox=box,
        zorder=4,
    )
