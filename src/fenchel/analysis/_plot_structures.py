"""Pictures of alignments, matchings and sequences, and of their means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.analysis._drawing import (
    GREY,
    INK,
    PALETTE,
    axes_of,
    bare,
    check_mean,
    check_names,
    shades,
    written,
)
from fenchel.structures import SequenceScores

_ALIGNMENT = "plot_alignment"
_MATCHING = "plot_matching"
_SEQUENCE = "plot_sequence"


def plot_alignment(
    weights: Tensor,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    path: Tensor | None = None,
    ax: Any = None,
    cmap: str = "Blues",
) -> Any:
    """Draw a mean alignment as a matrix of cells.

    Grey is exactly 0, colour is weight: the darkest is 1, a cell that every path uses.

    Args:
        weights: means (m, n), as ``predict`` of a :class:`fenchel.Alignment` gives them.
        rows: names of the rows; numbers every so often by default.
        columns: names of the columns.
        path: one alignment to draw as a line on top, 0s and 1s (m, n), such as ``argmax`` gives.
        ax: matplotlib axes to draw on; by default those of a new figure.
        cmap: matplotlib's name for the colours.

    Returns:
        The matplotlib axes.

    Example:
        >>> from fenchel.analysis import plot_alignment
        >>> scores = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
        >>> axes = plot_alignment(fy.SparseMAP(fy.Alignment()).predict(scores))
        >>> axes.images[0].get_array().shape
        (2, 2, 4)
    """
    values = check_mean(_ALIGNMENT, weights, "(m, n)")
    m, n = values.shape
    check_names(_ALIGNMENT, "rows", rows, m)
    check_names(_ALIGNMENT, "columns", columns, n)
    cells = None if path is None else _cells(path, (m, n))
    axes = axes_of(_ALIGNMENT, ax)
    colours = shades(values, cmap, max(1.0, float(values.max())))
    axes.imshow(colours, interpolation="nearest", aspect="equal")
    if max(m, n) <= 40:  # beyond that, lines would hide what is between them
        for i in range(1, m):
            axes.axhline(i - 0.5, color="white", linewidth=0.6)
        for j in range(1, n):
            axes.axvline(j - 0.5, color="white", linewidth=0.6)
    if cells is not None:
        axes.plot(cells[:, 1], cells[:, 0], color="#D55E00", linewidth=1.4)
    if columns is not None:
        axes.set_xticks(range(n), columns)
        for label in axes.get_xticklabels():
            label.set(rotation=60, ha="right", rotation_mode="anchor")
    if rows is not None:
        axes.set_yticks(range(m), rows)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _cells(path: Any, shape: tuple[int, int]) -> Tensor:
    """The cells of a path in its order; that is also the order of rows and columns."""
    values = check_mean(_ALIGNMENT, path, "(m, n)", "path")
    if tuple(values.shape) != shape or not bool(((values == 0) | (values == 1)).all()):
        raise FenchelError(
            f"{_ALIGNMENT}: expected `path` as 0s and 1s of the shape of `weights` {shape}, but "
            f"got shape {tuple(values.shape)} or other values."
        )
    return values.nonzero()


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
    values = check_mean(_MATCHING, weights, "(rows, columns)")
    n, m = values.shape
    check_names(_MATCHING, "rows", rows, n)
    check_names(_MATCHING, "columns", columns, m)
    axes = axes_of(_MATCHING, ax, (4.0, 0.6 + 0.45 * max(n, m)))
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


def plot_sequence(
    means: Tensor | SequenceScores,
    tags: Sequence[str] | None = None,
    tokens: Sequence[str] | None = None,
    *,
    ax: Any = None,
    cmap: str = "Blues",
) -> Any:
    """Draw mean tags as a lattice: a column of circles for each token, one circle for each tag.

    A small grey circle is a tag whose weight is exactly 0; the larger and darker another one, the
    more weight its tag has, which is also written on it. With means of transitions for each
    position there are lines as well, where these are above 0.

    Args:
        means: (T, K), as ``predict`` of a :class:`fenchel.Sequence` gives them, or a
            :class:`fenchel.SequenceScores` of means. Lines need transitions (T - 1, K, K): means of
            shared ones, (K, K), do not say where a transition is used.
        tags: names of the tags, from the top down.
        tokens: names of the positions.
        ax: matplotlib axes to draw on; by default those of a new figure.
        cmap: matplotlib's name for the colours.

    Returns:
        The matplotlib axes.

    Example:
        >>> from fenchel.analysis import plot_sequence
        >>> mean = fy.SparseMAP(fy.Sequence(2)).predict(torch.tensor([[1.0, 0.8], [3.0, 0.0]]))
        >>> axes = plot_sequence(mean, ["N", "V"], ["time", "flies"])
        >>> [text.get_text() for text in axes.texts]
        ['0.60', '0.40', '1']
    """
    blocks = means if isinstance(means, SequenceScores) else SequenceScores(means)
    values = check_mean(_SEQUENCE, blocks.emissions, "(T, K)", "means")
    positions, k = values.shape
    check_names(_SEQUENCE, "tags", tags, k)
    check_names(_SEQUENCE, "tokens", tokens, positions)
    squares = _squares(blocks.transitions, positions, k)
    axes = axes_of(_SEQUENCE, ax, (1.0 + 1.1 * positions, 0.8 + 0.7 * k))
    if squares is not None:
        for t, i, j in squares.nonzero().tolist():
            (line,) = axes.plot(
                [t, t + 1],
                [i, j],
                color=PALETTE[0],
                alpha=0.35 + 0.65 * min(float(squares[t, i, j]), 1.0),
                linewidth=0.4 + 2.6 * float(squares[t, i, j]),
                zorder=1,
            )
            line.set_gid(f"{t}:{i}->{j}")
    colours = shades(values, cmap, 1.0)
    for t in range(positions):
        for i in range(k):
            weight = float(values[t, i])
            axes.scatter(
                [t],
                [i],
                s=60 if weight == 0 else 270 + 330 * weight,
                color=[colours[t, i]],
                edgecolors=GREY if weight == 0 else PALETTE[0],
                linewidths=0.8,
                zorder=2,
            )
            if weight > 0:
                axes.text(
                    t,
                    i,
                    written(round(weight, 9)),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if weight > 0.5 else INK,
                    zorder=3,
                )
    axes.set_xlim(-0.5, positions - 0.5)
    axes.set_ylim(k - 0.5, -0.5)
    axes.set_xticks(range(positions), tokens or range(positions))
    axes.set_yticks(range(k), tags or range(k))
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _squares(transitions: Tensor | None, positions: int, k: int) -> Tensor | None:
    """Means of transitions for each position, if that is what they are."""
    if transitions is None or tuple(transitions.shape) == (k, k):
        return None
    if tuple(transitions.shape) != (positions - 1, k, k):
        raise FenchelError(
            f"{_SEQUENCE}: expected means of transitions of shape {(positions - 1, k, k)}, or "
            f"{(k, k)} if they are shared, but got {tuple(transitions.shape)}."
        )
    return transitions.detach().cpu().double()
