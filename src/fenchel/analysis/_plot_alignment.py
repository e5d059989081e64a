from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.analysis._drawing import axes_of, check_mean, check_names, shades

_NAME = "plot_alignment"


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
    values = check_mean(_NAME, weights, "(m, n)")
    m, n = values.shape
    check_names(_NAME, "rows", rows, m)
    check_names(_NAME, "columns", columns, n)
    cells = None if path is None else _cells(path, (m, n))
    axes = axes_of(_NAME, ax)
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
    values = check_mean(_NAME, path, "(m, n)", "path")
    if tuple(values.shape) != shape or not bool(((values == 0) | (values == 1)).all()):
        raise FenchelError(
            f"{_NAME}: expected `path` as 0s and 1s of the shape of `weights` {shape}, but got "
            f"shape {tuple(values.shape)} or other values."
        )
    return values.nonzero()
