"""Label proportions of simulated documents: logistic against sparsemax.

    python examples/plot_label_proportions.py [directory]              the figure of the docs
    python examples/plot_label_proportions.py --run FILE.json          simulate anew, all of it
    python examples/plot_label_proportions.py --run FILE.json --quick  two minutes' worth

The simulation is that of Martins & Astudillo (2016), section 4.1: 1,200 training and 1,000 test
documents; the number of labels of a document is Poisson's, the labels are drawn from a multinomial,
its words from the mixture of the labels' word distributions, uniform or with shares from a flat
Dirichlet. The penalty is chosen by 5-fold cross-validation. Needs scikit-learn and matplotlib.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from plot_maps import SETTINGS
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from fenchel.estimators import LabelProportionEstimator

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "label_proportions.json"
TRAIN, TEST, LABELS_A_DOCUMENT = 1200, 1000, 2
LOSSES = {"logistic": "shannon", "sparsemax": "gini"}
LOOKS = {"logistic": ("#000000", (0, (1, 1.2))), "sparsemax": ("#D55E00", "solid")}
MEASURES = {"mse": "mean squared error", "js": "Jensen-Shannon divergence"}


def documents(
    labels: int, length: int, mixture: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Word frequencies (n, labels), 1 on average, and label proportions (n, labels)."""
    prior = rng.random(labels)
    prior /= prior.sum()
    words = rng.random((labels, labels))
    words /= words.sum(1, keepdims=True)
    n = TRAIN + TEST
    q = np.zeros((n, labels))
    for row in q:
        size = 0
        while not 1 <= size <= labels:
            size = rng.poisson(LABELS_A_DOCUMENT)
        chosen = rng.choice(labels, size, replace=False, p=prior)
        row[chosen] = 1 / size if mixture == "uniform" else rng.dirichlet(np.ones(size))
    lengths = np.maximum(rng.poisson(length, n), 1)
    mixed = q @ words
    counts = np.stack([rng.multinomial(m, p) for m, p in zip(lengths, mixed, strict=True)])
    return labels * counts / lengths[:, None], q


def fit(omega: str, penalty: float, X: np.ndarray, q: np.ndarray) -> LabelProportionEstimator:
    """A model with the penalty λ/2 ‖W‖² beside the mean loss."""
    model = LabelProportionEstimator(omega, C=1 / (penalty * len(X)), tol=1e-6, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the smallest penalties take longer
        return model.fit(X, q)


def mse(p: np.ndarray, q: np.ndarray) -> float:
    return float(((p - q) ** 2).sum(1).mean())


def compare(labels: int, length: int, mixture: str, penalties: list[float], seed: int) -> dict:
    """Both losses on one simulated data set."""
    X, q = documents(labels, length, mixture, np.random.default_rng(seed))
    train, test = slice(0, TRAIN), slice(TRAIN, None)
    folds = list(KFold(5).split(X[train]))
    row: dict = {"labels": labels, "length": length, "mixture": mixture, "seed": seed}
    for name, omega in LOSSES.items():
        errors = [
            sum(mse(fit(omega, penalty, X[a], q[a]).predict(X[b]), q[b]) for a, b in folds)
            for penalty in penalties
        ]
        best = penalties[int(np.argmin(errors))]
        model = fit(omega, best, X[train], q[train])
        p = model.predict(X[test])
        row[name] = {
            "penalty": best,
            "mse": mse(p, q[test]),
            "js": -model.score(X[test], q[test]),
            "labels": float((p > 0).sum(1).mean()),
        }
    row["labels_of_the_target"] = float((q[test] > 0).sum(1).mean())
    return row


def simulate(path: Path, quick: bool, seeds: int) -> None:
    """All settings, one JSON file, which grows row by row."""
    lengths = [200, 400, 1000, 2000] if quick else list(range(200, 2001, 200))
    penalties = [10.0**j for j in (range(-7, -1, 2) if quick else range(-9, 1))]
    rows = []
    for labels in (10, 50):
        for mixture in ("uniform", "random"):
            for length in lengths:
                for seed in range(seeds):
                    row = compare(labels, length, mixture, penalties, seed)
                    rows.append(row)
                    print(
                        f"K={labels} {mixture:8} length {length:5} seed {seed}  "
                        + "  ".join(
                            f"{name} mse {row[name]['mse']:.4f} js {row[name]['js']:.4f}"
                            for name in LOSSES
                        ),
                        flush=True,
                    )
                    written = {"penalties": penalties, "rows": rows}
                    path.write_text(json.dumps(written, indent=1) + "\n")


def label_proportions() -> Figure:
    """Two rows, uniform and random mixtures: both errors against the length of a document."""
    rows = json.loads(RESULTS.read_text())["rows"]
    figure = Figure(figsize=(9.4, 5.4), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True)
    for axes_row, mixture in zip(grid, ("uniform", "random"), strict=True):
        for axes, (measure, title) in zip(axes_row, MEASURES.items(), strict=True):
            for labels, marker in ((10, "o"), (50, "s")):
                for name, (color, dashes) in LOOKS.items():
                    here = [r for r in rows if r["labels"] == labels and r["mixture"] == mixture]
                    lengths = sorted({r["length"] for r in here})
                    values = [
                        np.mean([r[name][measure] for r in here if r["length"] == length])
                        for length in lengths
                    ]
                    axes.plot(
                        lengths,
                        values,
                        color=color,
                        linestyle=dashes,
                        linewidth=1.8,
                        marker=marker,
                        markersize=4,
                        markerfacecolor="white" if labels == 50 else color,
                        label=f"{name}, K = {labels}",
                    )
            axes.set_title(f"{title}, {mixture} mixtures", loc="left")
            axes.set_ylim(bottom=0)
    for axes in grid[1]:
        axes.set_xlabel("average length of a document")
    grid[0][0].legend(handlelength=2.8, fontsize=9)
    return figure


def draw_all(directory: str | Path) -> list[Path]:
    """Draw the picture into ``directory`` as PNG and return its path, in a list."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(SETTINGS):
        label_proportions().savefig(directory / "label_proportions.png")
    return [directory / "label_proportions.png"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", nargs="?", default="out")
    parser.add_argument("--run", metavar="FILE.json", help="simulate, and write the results here")
    parser.add_argument("--quick", action="store_true", help="fewer lengths and penalties")
    parser.add_argument("--seeds", type=int, default=1, help="data sets of each kind")
    options = parser.parse_args()
    if options.run:
        simulate(Path(options.run), options.quick, options.seeds)
    else:
        for path in draw_all(options.directory):
            print(path)
