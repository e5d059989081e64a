"""Pictures of regularized attention: values and maps in 2-d, surfaces in 3-d, attention weights.

    python examples/plot_regularized_attention.py [directory]

Needs matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gallery
import torch
from matplotlib.figure import Figure
from plot_maps import SETTINGS

import fenchel as fy
from fenchel.analysis import plot_attention

TWO = {
    "max (argmax)": (fy.Zero(), "#000000", (0, (1, 1.2))),
    "softmax": (fy.Shannon(), "#0072B2", (0, (6, 1.5))),
    "sparsemax": (fy.Gini(), "#D55E00", "solid"),
    "sq-pnorm-max, q = 1.5": (fy.SquaredNorm(1.5), "#009E73", (0, (6, 1.5, 1, 1.5))),
    "fusedmax, λ = 0.25": (fy.FusedLasso(0.25), "#B8568F", "solid"),
}
SURFACES = {
    "sparsemax": fy.sparsemax,
    "fusedmax, λ = 0.2": lambda s: fy.fusedmax(s, 0.2),
    "oscarmax, λ = 0.2": lambda s: fy.oscarmax(s, 0.2),
    "sq-pnorm-max, q = 1.5": fy.sq_pnorm_max,
}


def two_dimensions() -> Figure:
    """max_Ω([t, 0]) up to Ω at a vertex, and the first weight."""
    t = torch.linspace(-3, 3, 1201, dtype=torch.float64)
    scores = torch.stack([t, torch.zeros_like(t)], -1)
    figure = Figure(figsize=(8.6, 3.4), layout="constrained")
    value, weight = figure.subplots(1, 2)
    vertex = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for label, (omega, color, dashes) in TWO.items():
        look = {"color": color, "linestyle": dashes, "linewidth": 1.8, "label": label}
        value.plot(t, omega.conjugate(scores) + omega(vertex), **look)
        weight.plot(t, omega.predict(scores)[:, 0], **look)
    value.set_title("smoothed maximum of [t, 0]", loc="left")
    weight.set_title("weight of the first", loc="left")
    value.legend(loc="upper left", fontsize=9, handlelength=2.6)
    for axes in (value, weight):
        axes.set_xlabel("t")
    return figure


def three_dimensions() -> Figure:
    """The first weight over the plane of the first two of three scores."""
    grid = torch.linspace(-2, 2, 161, dtype=torch.float64)
    x, y = torch.meshgrid(grid, grid, indexing="xy")
    scores = torch.stack([x, y, torch.zeros_like(x)], -1)
    figure = Figure(figsize=(10, 3.0), layout="constrained")
    for number, (label, map_) in enumerate(SURFACES.items()):
        axes = figure.add_subplot(1, 4, number + 1, projection="3d")
        axes.plot_surface(
            x.numpy(), y.numpy(), map_(scores)[..., 0].numpy(), cmap="viridis", rcount=60, ccount=60
        )
        axes.set_title(label, fontsize=10)
        axes.set_xlabel("$t_1$", labelpad=-8)
        axes.set_ylabel("$t_2$", labelpad=-8)
        axes.set_zlim(0, 1)
        axes.set_xticks([-2, 0, 2])
        axes.set_yticks([-2, 0, 2])
        axes.set_zticks([0, 0.5, 1])
        axes.tick_params(labelsize=7, pad=-3)
        axes.view_init(elev=28, azim=-125)
    return figure


def attention_weights() -> Figure:
    """One row of scores a query, three maps."""
    words = ["the", "old", "man", "on", "the", "bench", "reads", "a", "newspaper", "."]
    generator = torch.Generator().manual_seed(4)
    scores = torch.zeros(4, len(words), dtype=torch.float64)
    for row, (first, last) in enumerate([(0, 3), (3, 6), (6, 7), (7, 9)]):
        scores[row, first:last] = 0.9
    scores += 0.3 * torch.randn(scores.shape, generator=generator, dtype=torch.float64)
    maps = {
        "sparsemax": fy.sparsemax(scores),
        "fusedmax": fy.fusedmax(scores, 0.15),
        "oscarmax": fy.oscarmax(scores, 0.03),
    }
    figure = Figure(figsize=(10, 2.7), layout="constrained")
    for axes, (label, weights) in zip(figure.subplots(1, 3), maps.items(), strict=True):
        plot_attention(weights, ["der alte", "auf der", "liest", "eine"], words, ax=axes)
        axes.set_title(label, loc="left")
    return figure


FIGURES = {
    "regularized_2d": two_dimensions,
    "regularized_3d": three_dimensions,
    "attention_weights": attention_weights,
}


def draw_all(directory: str | Path) -> list[Path]:
    """Draw every picture into ``directory`` as PNG and return their paths."""
    return gallery.draw(FIGURES, SETTINGS, directory)


if __name__ == "__main__":
    for path in draw_all(sys.argv[1] if len(sys.argv) > 1 else "out"):
        print(path)
