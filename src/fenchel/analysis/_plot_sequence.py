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
    check_mean,
    check_names,
    shades,
    written,
)
from fenchel.structures import SequenceScores

_NAME = "plot_sequence"


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
    values = check_mean(_NAME, blocks.emissions, "(T, K)", "means")
    positions, k = values.shape
    check_names(_NAME, "tags", tags, k)
    check_names(_NAME, "tokens", tokens, positions)
    squares = _squares(blocks.transitions, positions, k)
    axes = axes_of(_NAME, ax, (1.0 + 1.1 * positions, 0.8 + 0.7 * k))
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
            f"{_NAME}: expected means of transitions of shape {(positions - 1, k, k)}, or {(k, k)}"
            f" if they are shared, but got {tuple(transitions.shape)}."
        )
    return transitions.detach().cpu().double()
