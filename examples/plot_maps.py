"""Pictures of the maps, for ``examples/demo_maps.py`` and for the documentation.

    python examples/plot_maps.py [directory]

draws them all. Needs matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gallery
import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor

import fenchel as fy

# One colour and one dash pattern a map, in every picture (Okabe and Ito's palette, which all kinds
# of colour vision tell apart).
STYLES = {
    1.0: ("softmax", "#000000", (0, (1, 1.2))),
    1.25: (r"entmax, $\alpha$ = 1.25", "#0072B2", (0, (6, 1.5))),
    1.5: (r"entmax, $\alpha$ = 1.5", "#009E73", "solid"),
    2.0: (r"sparsemax ($\alpha$ = 2)", "#D55E00", "solid"),
    4.0: (r"entmax, $\alpha$ = 4", "#B8568F", (0, (6, 1.5, 1, 1.5))),
}
SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.dpi": 160,
}


def two_scores() -> Figure:
    """Probability of the first of two scores [t, 0], and its slope."""
    t = torch.linspace(-5, 5, 4001, dtype=torch.float64)
    figure = Figure(figsize=(8.6, 3.9), layout="constrained")
    value, slope = figure.subplots(1, 2, sharex=True)
    for alpha, (label, color, dashes) in STYLES.items():
        scores = torch.stack([t, torch.zeros_like(t)], -1).requires_grad_()
        p = fy.entmax(scores, alpha)[:, 0]
        (grad,) = torch.autograd.grad(p.sum(), scores)
        look = {"color": color, "linestyle": dashes, "linewidth": 1.8, "label": label}
        value.plot(t, p.detach(), **look)
        slope.plot(t, grad[:, 0], **look)
        if alpha > 1:
            ends = [-1 / (alpha - 1), 1 / (alpha - 1)]
            value.plot(ends, [0, 1], "o", color=color, markersize=5, clip_on=False, zorder=5)
    value.set_title("first probability of scores [t, 0]", loc="left")
    value.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    value.set_ylim(-0.03, 1.03)
    value.legend(loc="upper left", handlelength=2.6, borderaxespad=0.2, fontsize=9.5)
    value.annotate(
        "exactly 1 from\n$t = 1/(\\alpha - 1)$ on",
        (2.0, 1.0),
        (1.9, 0.7),
        arrowprops={"arrowstyle": "-", "color": "#555555"},
        color="#333333",
    )
    slope.set_title("its slope", loc="left")
    slope.set_ylim(-0.06, 2.1)
    slope.set_yticks([0, 0.5, 1, 1.5, 2], ["0", "½", "1", "1½", "2"])
    slope.annotate(
        "falls to 0 where the\nanswer is one-hot",
        (1.0, 0.46),
        (0.75, 0.85),
        arrowprops={"arrowstyle": "-", "color": "#555555"},
        color="#333333",
    )
    for axes in (value, slope):
        axes.set_xlabel("t")
        axes.set_xlim(-5, 5)
        axes.grid(alpha=0.25)
    return figure


def three_scores() -> Figure:
    """Probability of the first of three scores [t₁, t₂, 0], over the plane of the first two."""
    t = torch.linspace(-4, 4, 641, dtype=torch.float64)
    t2, t1 = torch.meshgrid(t, t, indexing="ij")
    scores = torch.stack([t1, t2, torch.zeros_like(t1)], -1)
    figure = Figure(figsize=(8.6, 3.0), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    levels = [i / 10 for i in range(11)]
    for axes, alpha in zip(panels, (1.0, 1.5, 2.0), strict=True):
        p = fy.entmax(scores, alpha)[..., 0]
        filled = axes.contourf(t1, t2, p, levels, cmap="cividis")
        axes.contour(t1, t2, p, levels[1:-1], colors="white", linewidths=0.5, alpha=0.7)
        if alpha > 1:
            _mark(axes, t1, t2, p == 0, "exactly 0", (-2.3, 2.2), "white")
            _mark(axes, t1, t2, p == 1, "exactly 1", (2 + 0.5 / (alpha - 1), -2.2), "black")
        axes.set_title(STYLES[alpha][0], loc="left")
        axes.set_xlabel("t₁")
        axes.set_aspect("equal")
        axes.set_xticks([-2, 0, 2])
        axes.set_yticks([-2, 0, 2])
    panels[0].set_ylabel("t₂")
    bar = figure.colorbar(filled, ax=panels, ticks=[0, 0.5, 1], aspect=16, pad=0.015)
    bar.ax.set_yticklabels(["0", "½", "1"])
    bar.set_label("first probability of [t₁, t₂, 0]", labelpad=8)
    bar.outline.set_visible(False)
    return figure


def _mark(
    axes: Axes, x: Tensor, y: Tensor, region: Tensor, label: str, at: tuple[float, float], ink: str
) -> None:
    """Outline, hatch and name a region of the plane."""
    inside = region.double()
    with matplotlib.rc_context({"hatch.color": ink, "hatch.linewidth": 0.5}):
        axes.contourf(x, y, inside, [0.5, 1.5], colors="none", hatches=["///"])
    axes.contour(x, y, inside, [0.5], colors=ink, linewidths=1.4)
    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none"}
    axes.text(*at, label, ha="center", va="center", bbox=box, fontsize=8)


def simplex() -> Figure:
    """Where random scores of three classes land on the triangle of all distributions."""
    generator = torch.Generator().manual_seed(0)
    scores = 1.25 * torch.randn(1500, 3, dtype=torch.float64, generator=generator)
    corners = torch.eye(3, dtype=torch.float64)
    figure = Figure(figsize=(8.6, 2.4), layout="constrained")
    panels = figure.subplots(1, len(STYLES))
    for axes, (alpha, (label, color, _)) in zip(panels, STYLES.items(), strict=True):
        p = fy.entmax(scores, alpha)
        size = (p > 0).sum(-1)
        axes.plot(*_place(corners[[0, 1, 2, 0]]), color="#999999", linewidth=0.9)
        axes.scatter(*_place(p[size == 3]), s=5, color=color, alpha=0.35, linewidths=0)
        axes.scatter(*_place(p[size == 2]), s=9, color=color, alpha=0.5, linewidths=0, zorder=3)
        shares = torch.stack([(p == corner).all(-1).double().mean() for corner in corners])
        axes.scatter(
            *_place(corners), s=1400 * shares, color=_pale(color), edgecolor=color, zorder=2
        )
        text = "\n".join(
            f"{word} {(size == k).double().mean().item():.0%}"
            for word, k in (("inside", 3), ("edges", 2), ("corners", 1))
        )
        axes.text(0.5, -0.2, text, ha="center", va="top", fontsize=9, color="#333333")
        axes.set_title(label, fontsize=10)
        axes.set_aspect("equal")
        axes.set_xlim(-0.15, 1.15)
        axes.set_ylim(-0.58, 1.0)
        axes.set_axis_off()
    return figure


def _place(p: Tensor) -> tuple[Tensor, Tensor]:
    """Plane coordinates of distributions over three classes."""
    return p[..., 1] + p[..., 2] / 2, p[..., 2] * 3**0.5 / 2


def _pale(color: str) -> tuple[float, ...]:
    return tuple(1 - 0.35 * (1 - channel) for channel in to_rgb(color))


FIGURES = {"two_scores": two_scores, "three_scores": three_scores, "simplex": simplex}


def draw_all(directory: str | Path) -> list[Path]:
    """Draw every picture into ``directory`` as PNG and return their paths."""
    return gallery.draw(FIGURES, SETTINGS, directory)


if __name__ == "__main__":
    for path in draw_all(sys.argv[1] if len(sys.argv) > 1 else "out"):
        print(path)
