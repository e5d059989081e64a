"""The figure and the paragraph of the language model, from what benchmarks/language_model.py wrote.

    python examples/plot_language_model.py [directory]

Needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from plot_maps import SETTINGS

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "language_model.json"
LOOKS = {"softmax": ("#000000", (0, (1, 1.2))), "entmax": ("#009E73", "solid")}
PANELS = {
    "loss": "training loss (each its own)",
    "accuracy": "held-out accuracy",
    "epsilon_perplexity": "held-out ε-perplexity",
}


def language_model() -> Figure:
    """Loss, accuracy and perplexity against the seconds of training."""
    curves = json.loads(RESULTS.read_text())["curves"]
    figure = Figure(figsize=(9.4, 3.0), layout="constrained")
    for axes, (key, title) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
        for name, (color, dashes) in LOOKS.items():
            points = curves[name]
            axes.plot(
                [point["seconds"] for point in points],
                [point[key] for point in points],
                color=color,
                linestyle=dashes,
                linewidth=1.8,
                marker="o",
                markersize=3.5,
                label=name,
            )
        axes.set_title(title, loc="left")
        axes.set_xlabel("seconds of training")
        if key == "epsilon_perplexity":
            axes.set_yscale("log")
    figure.axes[0].legend(handlelength=2.6)
    return figure


def draw_all(directory: str | Path) -> list[Path]:
    """Draw the picture into ``directory`` as PNG and return its path, in a list."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(SETTINGS):
        language_model().savefig(directory / "language_model.png")
    return [directory / "language_model.png"]


if __name__ == "__main__":
    for path in draw_all(sys.argv[1] if len(sys.argv) > 1 else "out"):
        print(path)
