"""FenchelYoungClassifier against scikit-learn's LogisticRegression(lbfgs), time to the same tol.

    python -m benchmarks.estimators [--threads N] [--repeats R] [--out FILE.json]

20,000 rows, 100 features, 50 classes, float64. With Shannon's Ω both fit the same model, which is
checked (coefficients at a tight tolerance) before anything is timed; the sparse Ω fit models of
their own, whose accuracy is printed beside. CPU seconds of the process, in turns; a ratio below 1
is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks.reporting import machine
from fenchel.estimators import FenchelYoungClassifier

ROWS, FEATURES, CLASSES = 20_000, 100, 50


def data(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes, with features that are independent or strongly correlated."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, ROWS)
    X = 0.35 * rng.normal(size=(CLASSES, FEATURES))[y] + rng.normal(size=(ROWS, FEATURES))
    if kind == "correlated":
        X = X @ (0.2 * rng.normal(size=(FEATURES, FEATURES)) + np.eye(FEATURES))
        X /= X.std(0)
    return X, y


def gate() -> None:
    """Both must find the same model where they solve the same problem."""
    X, y = data("independent")
    X, y = X[:2000], y[:2000]
    ours = FenchelYoungClassifier("shannon", tol=1e-8).fit(X, y)
    theirs = LogisticRegression(tol=1e-8, max_iter=1000).fit(X, y)
    error = np.abs(ours.coef_ - theirs.coef_).max()
    if not error <= 1e-4:
        raise SystemExit(f"correctness gate is red: coefficients differ by {error:.1e}")


def measure(kind: str, repeats: int) -> dict:
    X, y = data(kind)
    work = {
        "LogisticRegression": lambda: LogisticRegression(max_iter=1000).fit(X, y),
        "shannon": lambda: FenchelYoungClassifier("shannon").fit(X, y),
        "tsallis 1.5": lambda: FenchelYoungClassifier("tsallis").fit(X, y),
        "gini": lambda: FenchelYoungClassifier("gini").fit(X, y),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    rows: dict = {}
    for turn in range(repeats + 1):
        for name, fit in work.items():
            start = time.process_time()
            model = fit()
            if turn:  # the first turn warms up
                times[name].append(time.process_time() - start)
            else:
                accuracy = float((model.predict(X) == y).mean())
                rows[name] = {"iterations": int(np.max(model.n_iter_)), "accuracy": accuracy}
    base = statistics.median(times["LogisticRegression"])
    for name in work:
        rows[name]["seconds"] = statistics.median(times[name])
        rows[name]["ratio"] = rows[name]["seconds"] / base
        print(
            f"{kind:12} {name:19} {rows[name]['seconds']:6.2f} s  ratio {rows[name]['ratio']:.2f}  "
            f"{rows[name]['iterations']:4} iterations  accuracy {rows[name]['accuracy']:.4f}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with threadpool_limits(options.threads):
        gate()
        results = {kind: measure(kind, options.repeats) for kind in ("independent", "correlated")}
    if options.out:
        options.out.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
