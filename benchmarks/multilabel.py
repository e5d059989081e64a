"""Multi-label F1 of logistic, softmax, sparsemax and entmax on Mulan's data sets.

    python -m benchmarks.multilabel DATA_DIR [--sets scene ...] [--out FILE.json] [--markdown FILE]

With --out the sets of earlier runs stay in the file, and in the table.

The protocol is that of Martins & Astudillo (2016), section 4.2: rows without labels are removed,
features have mean 0 and variance 1 (but not words of a text), L-BFGS runs for at most 100
iterations, and the penalty λ with the threshold (logistic, softmax) or the inverse temperature t
(sparsemax, entmax) are chosen by 5-fold cross-validation, once for micro and once for macro F1.
DATA_DIR has a folder a set, with ``NAME-train.arff`` and ``NAME-test.arff`` (or ``NAME.arff``,
split here) and ``NAME.xml``. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import KFold

import fenchel as fy
from fenchel.estimators import FenchelYoungMultilabelClassifier

SETS = ("scene", "emotions", "birds", "cal500", "bibtex")
PENALTIES = [10.0**j for j in range(-8, 3)]
STEPS = range(1, 11)
OMEGAS = {"softmax": fy.Shannon(), "sparsemax": fy.Gini(), "entmax 1.5": fy.Tsallis(1.5)}
MODELS = ("logistic", *OMEGAS)
SMALL = 3000  # rows; a larger training set keeps a fifth for validation instead of five folds
PAPER = {  # micro and macro F1 of the paper's Table 2
    "scene": {"logistic": (70.96, 72.95), "softmax": (74.01, 75.03), "sparsemax": (73.45, 74.57)},
    "emotions": {
        "logistic": (66.75, 68.56),
        "softmax": (67.34, 67.51),
        "sparsemax": (66.38, 66.07),
    },
    "birds": {"logistic": (45.78, 33.77), "softmax": (48.67, 37.06), "sparsemax": (49.44, 39.13)},
    "cal500": {"logistic": (48.88, 24.49), "softmax": (47.46, 23.51), "sparsemax": (48.47, 26.20)},
}


def read_arff(path: Path) -> tuple[list[str], np.ndarray]:
    """Names and values of an ARFF file of numbers, dense or sparse; nominal values are numbers."""
    names, rows, kinds = [], [], []
    inside = False
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        line = line.strip()
        if not line or line.startswith("%"):
            continue
        if inside:
            rows.append(line)
        elif line.lower().startswith("@data"):
            inside = True
        elif line.lower().startswith("@attribute"):
            body = line[len("@attribute") :].strip()
            match = re.match(r"'((?:[^'\\]|\\.)*)'|\"([^\"]*)\"|(\S+)", body)
            name = next(group for group in match.groups() if group is not None)
            names.append(name.replace("\\'", "'"))
            nominal = re.search(r"\{(.*)\}\s*$", body[match.end() :])
            kinds.append(
                {value.strip(" '\""): at for at, value in enumerate(nominal.group(1).split(","))}
                if nominal
                else None
            )
    values = np.zeros((len(rows), len(names)))
    for at, line in enumerate(rows):
        if line.startswith("{"):
            pairs = [pair.split(None, 1) for pair in line.strip("{}").split(",") if pair.strip()]
            cells = [(int(column), value) for column, value in pairs]
        else:
            cells = list(enumerate(line.split(",")))
        for column, value in cells:
            values[at, column] = _number(value.strip(" '\""), kinds[column])
    return names, values


def _number(value: str, nominal: dict[str, int] | None) -> float:
    try:
        return float(value)
    except ValueError:
        return float(nominal[value]) if nominal and value in nominal else float("nan")


def load(folder: Path) -> dict[str, np.ndarray]:
    """X and y of the training and the test part, standardized, rows without labels removed."""
    name = folder.name
    text = (folder / f"{name}.xml").read_text(encoding="utf-8")
    labels = [_unescape(x) for x in re.findall(r'<label name="([^"]*)"', text)]
    parts = {}
    if (folder / f"{name}-train.arff").exists():
        for part in ("train", "test"):
            parts[part] = read_arff(folder / f"{name}-{part}.arff")
    else:
        names, values = read_arff(folder / f"{name}.arff")
        order = np.random.default_rng(0).permutation(len(values))
        cut = 400 if name == "cal500" else round(0.8 * len(values))
        parts = {"train": (names, values[order[:cut]]), "test": (names, values[order[cut:]])}
    data = {}
    for part, (names, values) in parts.items():
        wanted = set(labels)
        at = [names.index(label) for label in labels]
        rest = [column for column, title in enumerate(names) if title not in wanted]
        y = values[:, at].astype(int)
        kept = y.sum(1) > 0
        data[f"X_{part}"], data[f"y_{part}"] = values[kept][:, rest], y[kept]
    if (data["X_train"] != 0).mean() < 0.1:  # words of a text: the paper left those as they are
        return {key: csr_matrix(x) if key[0] == "X" else x for key, x in data.items()}
    mean, deviation = data["X_train"].mean(0), data["X_train"].std(0)
    deviation[deviation == 0] = 1.0
    for part in ("X_train", "X_test"):
        data[part] = (data[part] - mean) / deviation
    return data


def _unescape(text: str) -> str:
    for code, sign in (("&amp;", "&"), ("&apos;", "'"), ("&quot;", '"'), ("&lt;", "<")):
        text = text.replace(code, sign)
    return text


def f1(y: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Micro and macro F1, in percent."""
    scores = [f1_score(y, guess, average=kind, zero_division=0) for kind in ("micro", "macro")]
    return 100 * np.array(scores)


def scores_of(model: str, penalty: float, X: np.ndarray, y: np.ndarray, at: np.ndarray):
    """What a model fit on (X, y) says of the rows ``at``: probabilities, or scores to be mapped."""
    C = 1 / (penalty * X.shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 100 iterations are the protocol
        if model != "logistic":
            omega = OMEGAS[model]
            fit = FenchelYoungMultilabelClassifier(omega, C=C, max_iter=100).fit(X, y)
            return fit.decision_function(at)
        p = np.zeros((at.shape[0], y.shape[1]))
        for label in range(y.shape[1]):
            column = y[:, label]
            if column.min() == column.max():
                p[:, label] = column[0]
                continue
            p[:, label] = (
                LogisticRegression(C=C, max_iter=100).fit(X, column).predict_proba(at)[:, 1]
            )
        return p


def cut(model: str, scores: np.ndarray, step: int) -> np.ndarray:
    """The predicted labels at a step of the grid of thresholds or temperatures."""
    if model == "logistic":
        return scores > 0.05 * step
    if model == "softmax":
        p = torch.softmax(torch.from_numpy(scores), -1).numpy()
        return p > step / scores.shape[1]
    return OMEGAS[model].predict(torch.from_numpy(0.5 * step * scores)).numpy() > 0


def run(model: str, data: dict[str, np.ndarray], penalties: list[float]) -> dict:
    """Cross-validate, refit, test."""
    X, y = data["X_train"], data["y_train"]
    folds = list(KFold(5, shuffle=True, random_state=0).split(X))
    if len(y) > SMALL:
        folds = folds[:1]
    table = np.zeros((len(penalties), len(STEPS), 2))
    for at, penalty in enumerate(penalties):
        for train, held in folds:
            scores = scores_of(model, penalty, X[train], y[train], X[held])
            for step in STEPS:
                table[at, step - 1] += f1(y[held], cut(model, scores, step)) / len(folds)
    result: dict = {}
    for kind, name in enumerate(("micro", "macro")):
        row, column = np.unravel_index(table[:, :, kind].argmax(), table.shape[:2])
        scores = scores_of(model, penalties[row], X, y, data["X_test"])
        result[name] = f1(data["y_test"], cut(model, scores, column + 1))[kind]
        result[f"{name}_chosen"] = {"penalty": penalties[row], "step": int(column) + 1}
        result[f"{name}_validation"] = table[row, column, kind]
    return result


def markdown(results: dict) -> str:
    """The table of the docs: micro / macro F1, the paper's numbers in brackets."""
    lines = ["| set | " + " | ".join(MODELS) + " |", "|---|" + "---|" * len(MODELS)]
    for name in (name for name in SETS if name in results):
        here = results[name]
        cells = [f"{name} ({here['train']} / {here['test']} rows, {here['labels']} labels)"]
        for model in MODELS:
            if model not in here:
                cells.append("")
                continue
            cell = f"{here[model]['micro']:.2f} / {here[model]['macro']:.2f}"
            paper = PAPER.get(name, {}).get(model)
            cells.append(cell + (f" ({paper[0]:.2f} / {paper[1]:.2f})" if paper else ""))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="a directory with a folder a data set")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    parser.add_argument("--markdown", type=Path, help="write the table of the docs to this file")
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for name in options.sets:
        if not (options.data / name).is_dir():
            print(f"{name}: not in {options.data}")
            continue
        data = load(options.data / name)
        penalties = PENALTIES if len(data["y_train"]) <= SMALL else PENALTIES[2:9]
        here = results.setdefault(name, {})
        here["train"], here["features"] = data["X_train"].shape
        here["test"], here["labels"] = data["y_test"].shape
        print(f"{name}: {data['X_train'].shape} train, {data['y_test'].shape} test", flush=True)
        for model in options.models:
            start = time.process_time()
            here[model] = run(model, data, penalties)
            here[model]["seconds"] = round(time.process_time() - start, 1)
            paper = PAPER.get(name, {}).get(model)
            print(
                f"  {model:11} micro {here[model]['micro']:.2f} macro {here[model]['macro']:.2f}"
                + (f"   (paper {paper[0]:.2f} / {paper[1]:.2f})" if paper else "")
                + f"   {here[model]['seconds']} s",
                flush=True,
            )
            if options.out:
                options.out.write_text(json.dumps(results, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(results))


if __name__ == "__main__":
    main()
