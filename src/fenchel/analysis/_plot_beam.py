from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fenchel._checks import FenchelError
from fenchel.analysis._drawing import axes_of

_BEST, _OTHER, _PALE = "#08519c", "#6b6b6b", "#c6dbef"
END = "⏎"

Step = tuple[str, float]


@dataclass
class _Node:
    """A prefix: the edge that leads to it, its probability, and how it goes on."""

    token: str
    step: float
    mass: float
    best: bool = False
    children: dict[str, _Node] = field(default_factory=dict)
    row: float = 0.0


def plot_beam(
    hypotheses: Sequence[Sequence[Step]], *, ax: Any = None, end: str = END, start: str = ""
) -> Any:
    """Draw all strings that a search found as the tree of their prefixes.

    An edge bears the token that extends the prefix and its probability there, unless that is 1. At
    the end of each string stands its own probability, the product of the edges. The most probable
    string is blue. Nothing is pruned: strings that are given are drawn.

    Args:
        hypotheses: for each string its steps, pairs of token and conditional probability.
        ax: matplotlib axes to draw on; by default those of a new figure, of a size that fits.
        end: the token that ends a string; it is drawn as a dot.
        start: what to write at the root.

    Returns:
        The matplotlib axes.

    Example:
        >>> from fenchel.analysis import plot_beam
        >>> drawn = [("d", 1.0), ("rawn", 0.7), ("⏎", 1.0)]
        >>> drawed = [("d", 1.0), ("rawed", 0.3), ("⏎", 1.0)]
        >>> axes = plot_beam([drawn, drawed])
        >>> sorted(text.get_text() for text in axes.texts)[:3]
        ['0.30', '0.70', '30.0 %']
    """
    _check(hypotheses)
    root = _tree(hypotheses)
    depth = max(len(steps) for steps in hypotheses)
    size = (0.62 * (depth + 4), 0.72 * len(hypotheses) + 0.3)
    axes = axes_of("plot_beam", ax, size)
    _place(root, 0)
    rows = max(1, len(hypotheses))
    if start:
        axes.text(-0.15, root.row, start, ha="right", va="center", fontsize=12, weight="bold")
    _draw(axes, root, 0, "", end)
    axes.set_xlim(-0.2 - 0.14 * len(start), depth + 2.2)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.axis("off")
    return axes


def _tree(hypotheses: Sequence[Sequence[Step]]) -> _Node:
    root = _Node("", 1.0, 1.0)
    leaves = []
    for steps in hypotheses:
        path = [root]
        for token, probability in steps:
            node = path[-1]
            child = _Node(token, probability, node.mass * probability)
            path.append(node.children.setdefault(token, child))
        leaves.append(path)
    for node in max(leaves, key=lambda path: path[-1].mass):
        node.best = True
    return root


def _place(node: _Node, row: float) -> float:
    """Give each leaf a row of its own, the likelier above; a parent stands beside its best child.

    Returns the first free row.
    """
    if not node.children:
        node.row = row
        return row + 1
    likely = sorted(node.children.values(), key=lambda child: (not child.best, -child.mass))
    for child in likely:
        row = _place(child, row)
    node.row = likely[0].row
    return row


def _draw(axes: Any, node: _Node, column: int, text: str, end: str) -> None:
    for child in node.children.values():
        colour = _BEST if child.best else _OTHER
        width = 1.0 + 2.5 * child.mass**0.5
        # down first, then along: edges of one prefix share the vertical line
        xs, ys = [column, column + 0.18, column + 1], [node.row, child.row, child.row]
        axes.plot(xs, ys, color=colour, linewidth=width, zorder=2 if child.best else 1,
                  solid_joinstyle="round", solid_capstyle="round")  # fmt: skip
        if child.token != end:
            axes.text(column + 0.6, child.row - 0.1, child.token, ha="center", va="bottom",
                      fontsize=12, color=colour)  # fmt: skip
        if child.step < 0.9995:
            axes.text(column + 0.6, child.row + 0.1, _short(child.step), ha="center", va="top",
                      fontsize=7.5, color=colour)  # fmt: skip
        whole = text + ("" if child.token == end else child.token)
        if child.children:
            _draw(axes, child, column + 1, whole, end)
            continue
        axes.plot([column + 1], [child.row], marker="o", color=colour, markersize=5)
        weight = "bold" if child.best else "normal"
        axes.text(column + 1.2, child.row - 0.04, whole, ha="left", va="bottom", fontsize=12,
                  color=colour, weight=weight)  # fmt: skip
        share = _short(100 * child.mass, 1) + " %"
        axes.text(column + 1.2, child.row + 0.08, share, ha="left", va="top", fontsize=9,
                  color=colour)  # fmt: skip


def _short(number: float, digits: int = 2) -> str:
    """A number with so many digits after the point, or with two that count if they would be 0."""
    text = f"{number:.{digits}f}"
    return text if float(text) else f"{number:.2g}"


def _check(hypotheses: Any) -> None:
    if not hypotheses or not all(hypotheses):
        raise FenchelError(
            "plot_beam: expected at least one hypothesis of at least one step, but got none."
        )
    for steps in hypotheses:
        for step in steps:
            good = isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], str)
            if not good or not 0 < step[1] <= 1.001:
                raise FenchelError(
                    "plot_beam: expected steps of a token and its probability above 0, but got "
                    f"{step!r}."
                )
