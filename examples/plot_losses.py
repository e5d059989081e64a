"""The figure of the losses: entropy, map and loss of two classes.

    python examples/plot_losses.py [directory]

Needs matplotlib.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure
from plot_maps import SETTINGS

import fenchel as fy

# Okabe and Ito's palette, a dash pattern each.
TSALLIS = {
    r"$\alpha$ = 1 (softmax)": (fy.Tsallis(1.0), "#000000", (0, (1, 1.2))),
    r"$\alpha$ = 1.5": (fy.Tsallis(1.5), "#009E73", "solid"),
    r"$\alpha$ = 2 (sparsemax)": (fy.Tsallis(2.0), "#D55E00", "solid"),
    r"$\alpha$ = 4": (fy.Tsallis(4.0), "#B8568F", (0, (6, 1.5, 1, 1.5))),
    r"$\alpha$ = ∞ (argmax)": (fy.Zero(), "#0072B2", (0, (6, 1.5))),
}
NORMS = {
    "q = 1.25": (fy.Norm(1.25), "#000000", (0, (1, 1.2))),
    "q = 2": (fy.Norm(2.0), "#009E73", "solid"),
    "q = 4": (fy.Norm(4.0), "#D55E00", "solid"),
    "q = ∞ (Berger-Parker)": (fy.Norm(math.inf), "#0072B2", (0, (6, 1.5))),
}


def losses() -> Figure:
    """Two rows, Tsallis and norm entropies: H, the first probability, the loss of class 1."""
    figure = Figure(figsize=(9.4, 5.6), layout="constrained")
    grid = figure.subplots(2, 3)
    t = torch.linspace(0, 1, 801, dtype=torch.float64)
    s = torch.linspace(-3.5, 3.5, 1401, dtype=torch.float64)
    scores = torch.stack([s, torch.zeros_like(s)], -1)
    first = torch.zeros(len(s), dtype=torch.long)
    for row, (family, name) in enumerate([(TSALLIS, "Tsallis"), (NORMS, "norm")]):
        entropy, probability, loss = grid[row]
        for label, (omega, color, dashes) in family.items():
            look = {"color": color, "linestyle": dashes, "linewidth": 1.8, "label": label}
            entropy.plot(t, -omega(torch.stack([t, 1 - t], -1)), **look)
            probability.plot(s, omega.predict(scores)[:, 0], **look)
            loss.plot(s, omega.loss(scores, first), **look)
            if omega.margin < 3.5:
                loss.plot([omega.margin], [0], "o", color=color, markersize=5, zorder=5)
        entropy.set_title(f"{name} entropy of (t, 1 − t)", loc="left")
        probability.set_title("first probability of [s, 0]", loc="left")
        loss.set_title("loss if the first is right", loc="left")
        loss.legend(loc="upper right", handlelength=2.6, borderaxespad=0.0, fontsize=9)
        loss.set_ylim(-0.1, 3.6)
        probability.set_ylim(-0.03, 1.03)
        entropy.set_xlabel("t")
        for axes in (probability, loss):
            axes.set_xlabel("s")
    return figure


def draw_all(directory: str | Path) -> list[Path]:
    """Draw the picture into ``directory`` as PNG and return its path, in a list."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(SETTINGS):
        losses().savefig(directory / "losses.png")
    return [directory / "losses.png"]


if __name__ == "__main__":
    for path in draw_all(sys.argv[1] if len(sys.argv) > 1 else "out"):
        print(path)
