"""Pictures of the docs page "Evidence", from what benchmarks/papers measured.

    python examples/plot_evidence.py [directory]

Reads benchmarks/results/evidence.json, which ``python -m benchmarks.papers.report`` writes.
Needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gallery
from matplotlib.figure import Figure
from plot_maps import SETTINGS

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "evidence.json"
SPARSE, DENSE = "#009E73", "#000000"
LEARNED = "transformer-learned-0"


def alpha_grid() -> Figure:
    """Token accuracy against the α of the attention, and against that of the output."""
    models = json.loads(RESULTS.read_text())["grid"]
    figure = Figure(figsize=(8.6, 3.3), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for place, (moved, fixed) in zip(
        axes, (("attention", "output"), ("output", "attention")), strict=True
    ):
        points = sorted(
            (model[moved], 100 * model["measured"]["token_accuracy"])
            for model in models
            if model[fixed] == 1.5
        )
        place.plot(*zip(*points, strict=True), color=SPARSE, marker="o", linewidth=1.8)
        place.set_xlabel(f"α of the {moved}")
        place.set_title(f"{fixed} with α = 1.5", loc="left")
        place.grid(color="#dddddd", linewidth=0.6)
    axes[0].set_ylabel("right next tokens (%)")
    return figure


def learned_alphas() -> Figure:
    """The α of each head of a Transformer as it learns, by kind of attention."""
    models = json.loads(RESULTS.read_text())["translation"]
    points = next(model for model in models if model["name"] == LEARNED)["trajectories"]
    steps = [point["step"] for point in points]
    figure = Figure(figsize=(9.4, 3.0), layout="constrained")
    for axes, (kind, title) in zip(
        figure.subplots(1, 3, sharey=True),
        (("encoder", "encoder"), ("decoder", "decoder, to itself"), ("cross", "to the source")),
        strict=True,
    ):
        heads = zip(*(point[kind] for point in points), strict=True)
        for number, alphas in enumerate(heads):
            first = number < len(points[0][kind]) // 2
            axes.plot(
                steps,
                alphas,
                color="#0072B2" if first else "#D55E00",
                linestyle="solid" if first else (0, (6, 1.5)),
                linewidth=1.4,
                label={0: "first layer", len(points[0][kind]) // 2: "second layer"}.get(number),
            )
        axes.axhline(1.5, color="#999999", linewidth=0.8, zorder=0)
        axes.set_title(title, loc="left")
        axes.set_xlabel("updates")
    figure.axes[0].set_ylabel("α of a head")
    figure.axes[0].legend(handlelength=2.6)
    return figure


FIGURES = {"alpha_grid": alpha_grid, "learned_alphas": learned_alphas}


def draw_all(directory: str | Path) -> list[Path]:
    """Draw every picture into ``directory`` as PNG and return their paths."""
    return gallery.draw(FIGURES, SETTINGS, directory)


if __name__ == "__main__":
    for path in draw_all(sys.argv[1] if len(sys.argv) > 1 else "out"):
        print(path)
