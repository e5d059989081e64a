"""Pictures of structures: what MAP, SparseMAP, marginals and smoothed programs say of one input.

    python examples/plot_structures.py [directory]

Needs matplotlib. The scores are made up by hand, to be ambiguous where the sentence is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gallery
import torch
from matplotlib.figure import Figure
from plot_maps import SETTINGS
from torch import Tensor

import fenchel as fy
from fenchel.analysis import (
    plot_alignment,
    plot_attention,
    plot_matching,
    plot_sequence,
    plot_trees,
)

SENTENCE = ["I", "saw", "her", "duck", "with", "a", "telescope"]


def noise(*shape: int, scale: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def arc_scores() -> Tensor:
    """Who hangs on whom: is it her duck or does she duck, and who has the telescope?"""
    n = len(SENTENCE)
    at = {word: number for number, word in enumerate(SENTENCE)}
    scores = noise(n, n + 1, scale=0.3, seed=1) - 0.5
    likely = [
        ("I", "saw", 2.5),
        ("her", "duck", 1.2),
        ("her", "saw", 0.8),
        ("duck", "saw", 2.5),
        ("with", "saw", 1.2),
        ("with", "duck", 0.9),
        ("a", "telescope", 2.5),
        ("telescope", "with", 2.5),
    ]
    for word, head, score in likely:
        scores[at[word], at[head] + 1] = score
    scores[at["saw"], 0] = 2.5
    return scores


def trees() -> Figure:
    """A sparse set of trees, its mean, and the marginals of all trees."""
    scores, tree = arc_scores(), fy.DependencyTree()
    sparse = fy.SparseMAP(tree)
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    panels = figure.subplots(2, 2)
    plot_trees(fy.MAP(tree).predict(scores), SENTENCE, ax=panels[0, 0])
    panels[0, 0].set_title("MAP: the best tree", loc="left")
    plot_trees(fy.Marginals(tree).predict(scores), SENTENCE, ax=panels[0, 1], label_from=0.15)
    panels[0, 1].set_title("marginals: every tree has some mass", loc="left")
    plot_trees(sparse.predict(scores), SENTENCE, ax=panels[1, 0])
    panels[1, 0].set_title("SparseMAP: the mean of few trees", loc="left")
    plot_trees(sparse.solve(scores), SENTENCE, ax=panels[1, 1])
    panels[1, 1].set_title("SparseMAP: these trees", loc="left")
    return figure


def matching() -> Figure:
    """Words of two languages, one to one."""
    english = ["yesterday", "I", "read", "the", "book"]
    german = ["gestern", "habe", "ich", "das", "Buch", "gelesen"]
    scores = noise(5, 6, scale=0.15, seed=3)
    pairs = [(0, 0, 1.5), (1, 2, 1.5), (2, 5, 1.0), (2, 1, 0.75), (3, 3, 1.5), (4, 4, 1.5)]
    for row, column, score in pairs:
        scores[row, column] = score
    answers = {
        "MAP": fy.MAP(fy.Assignment()).predict(scores),
        "SparseMAP": fy.SparseMAP(fy.Assignment()).predict(scores),
        "sinkhorn, gamma 0.5": fy.sinkhorn(scores, 0.5),
    }
    figure = Figure(figsize=(10, 3.0), layout="constrained")
    for axes, (label, mean) in zip(figure.subplots(1, 3), answers.items(), strict=True):
        plot_matching(mean, english, german, ax=axes)
        axes.set_title(label, loc="left")
    return figure


def alignment() -> Figure:
    """Two time series, the second slower at first and faster later."""
    time = torch.linspace(0, 1, 22, dtype=torch.float64)
    other = torch.linspace(0, 1, 26, dtype=torch.float64)
    x = (6.5 * time).sin() * (1 - 0.3 * time) + noise(22, scale=0.05, seed=0)
    y = (6.5 * other**1.7).sin() * (1 - 0.3 * other**1.7) + noise(26, scale=0.05, seed=1)
    scores = -6 * (x[:, None] - y).square()
    structure = fy.Alignment()
    best = structure.argmax(scores)
    answers = {
        "MAP (DTW)": best,
        "marginals (soft-DTW)": fy.Marginals(structure).predict(scores),
        "SparseMAP": fy.SparseMAP(structure).predict(scores),
        'smoothed DP, "l2"': fy.SmoothedDP(structure, "l2", gamma=1.0).predict(scores),
    }
    figure = Figure(figsize=(10, 5.0), layout="constrained")
    grid = figure.add_gridspec(2, 4, height_ratios=[1.0, 1.35])
    series = figure.add_subplot(grid[0, :])
    for i, j in best.nonzero().tolist():
        series.plot([time[i], other[j]], [x[i] + 1.6, y[j]], color="#bbbbbb", linewidth=0.8)
    series.plot(time, x + 1.6, "o-", color="#0072B2", markersize=3.5, label="x (rows)")
    series.plot(other, y, "o-", color="#D55E00", markersize=3.5, label="y (columns)")
    series.set_title("two series and their best alignment", loc="left")
    series.legend(loc="upper right", ncols=2)
    series.set_ylim(top=3.3)
    series.set_xticks([])
    series.set_yticks([])
    for spine in series.spines.values():
        spine.set_visible(False)
    for column, (label, mean) in enumerate(answers.items()):
        axes = figure.add_subplot(grid[1, column])
        plot_alignment(mean, ax=axes)
        axes.set_xticks([0, 10, 20])
        axes.set_yticks([0, 10, 20])
        axes.set_title(f"{label}\n{int((mean > 0).sum())} of {mean.numel()} cells", loc="left")
    return figure


def sequence() -> Figure:
    """Tags of a sentence that can be read in more than one way."""
    tokens = ["time", "flies", "like", "an", "arrow"]
    tags = ["noun", "verb", "prep.", "det."]
    emissions = torch.tensor(
        [
            [1.0, 0.1, -1.0, -1.0],
            [0.9, 0.9, -1.0, -1.0],
            [-1.0, 0.5, 0.8, -1.0],
            [-1.0, -1.0, -0.5, 1.5],
            [1.2, -0.5, -1.0, -1.0],
        ],
        dtype=torch.float64,
    )
    transitions = torch.tensor(  # [from, to]
        [
            [0.4, 0.6, 0.3, -0.5],
            [0.3, -0.8, 0.4, 0.4],
            [0.2, -0.8, -1.0, 0.5],
            [0.8, -1.0, -1.0, -1.0],
        ],
        dtype=torch.float64,
    )
    scores = fy.SequenceScores(emissions, transitions.expand(4, 4, 4))
    chain = fy.Sequence(4)
    answers = {
        "SparseMAP": fy.SparseMAP(chain).predict(scores),
        'smoothed DP, "l2"': fy.SmoothedDP(chain, "l2").predict(scores),
        "marginals": fy.Marginals(chain).predict(scores),
    }
    figure = Figure(figsize=(10, 2.9), layout="constrained")
    for axes, (label, mean) in zip(figure.subplots(1, 3), answers.items(), strict=True):
        plot_sequence(mean, tags, tokens, ax=axes)
        axes.set_title(label, loc="left")
    return figure


def subsets() -> Figure:
    """The same scores, when one, two, three or four items are chosen."""
    items = ["tomato", "onion", "olives", "ham", "basil", "corn", "tuna"]
    scores = torch.tensor([1.1, 0.9, 0.8, 0.2, 0.0, -0.6, -0.9], dtype=torch.float64)
    figure = Figure(figsize=(10, 3.0), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), (fy.SparseMAP, fy.Marginals), strict=True):
        means = torch.stack([kind(fy.KSubsets(k)).predict(scores) for k in (1, 2, 3, 4)])
        alone = torch.arange(len(items)).expand(4, -1)  # equal weights are no groups here
        names = [f"{k} of 7" for k in (1, 2, 3, 4)]
        plot_attention(means, names, items, groups=alone, top=1.0, ax=axes)
        for k, row in enumerate(means.tolist()):
            for item, mean in enumerate(row):
                colour = "white" if mean > 0.5 else "#333333"
                text = "0" if mean == 0 else "1" if mean == 1 else f"{mean:.2f}"
                axes.text(
                    item + 0.5, k + 0.5, text, ha="center", va="center", fontsize=8, color=colour
                )
        axes.set_title({fy.SparseMAP: "SparseMAP", fy.Marginals: "marginals"}[kind], loc="left")
    return figure


FIGURES = {
    "structure_trees": trees,
    "structure_matching": matching,
    "structure_alignment": alignment,
    "structure_sequence": sequence,
    "structure_subsets": subsets,
}


def draw_all(directory: str | Path) -> list[Path]:
    """Draw every picture into ``directory`` as PNG and return their paths."""
    return gallery.draw(FIGURES, SETTINGS, directory)


if __name__ == "__main__":
    for path in draw_all(sys.argv[1] if len(sys.argv) > 1 else "out"):
        print(path)
