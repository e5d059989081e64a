"""Targets of linear models: classes, sets of labels, or distributions, as rows of the simplex."""

from __future__ import annotations

from typing import Any

from fenchel._checks import FenchelError
from fenchel.estimators._sklearn import np, sparse

#: How far from 1 the sum of a row of proportions may be.
SUM_TOL = 1e-6


class Targets:
    """Rows of the simplex: class indices (n) or distributions (n, classes)."""

    def __init__(self, values: Any, classes: int) -> None:
        self.values = values
        self.classes = classes
        self.are_indices = values.ndim == 1

    def dense(self, rows: slice) -> Any:
        """Distributions, in new memory, shape (rows, classes)."""
        if not self.are_indices:
            return self.values[rows].copy()
        index = self.values[rows]
        dense = np.zeros((len(index), self.classes))
        dense[np.arange(len(index)), index] = 1.0
        return dense

    def dot(self, scores: Any, rows: slice) -> Any:
        """⟨y, θ⟩ of every row."""
        if self.are_indices:
            return scores[np.arange(len(scores)), self.values[rows]]
        return np.einsum("ij,ij->i", self.values[rows], scores)

    def subtract_from(self, p: Any, rows: slice) -> None:
        """p − y, in the memory of p."""
        if self.are_indices:
            p[np.arange(len(p)), self.values[rows]] -= 1.0
        else:
            p -= self.values[rows]


def label_sets(name: str, y: Any, unlabeled: str) -> tuple[Any, Any]:
    """An indicator matrix as uniform distributions, and which rows are kept (None = all)."""
    y = y.toarray() if sparse.issparse(y) else np.asarray(y)
    y = y.astype(np.float64)
    sizes = y.sum(1, keepdims=True)
    empty = np.flatnonzero(sizes == 0)
    keep = None
    if empty.size:
        if unlabeled == "error":
            more = f" and {empty.size - 1} more" if empty.size > 1 else ""
            raise FenchelError(
                f"{name}: expected at least one label in every row of `y`, but row {empty[0]}"
                f"{more} has none; drop such rows, or ask for unlabeled='drop' or 'uniform'."
            )
        if unlabeled == "drop":
            keep = sizes[:, 0] > 0
            if not keep.any():
                raise FenchelError(f"{name}: expected labels in `y`, but no row has any.")
            y, sizes = y[keep], sizes[keep]
        else:
            y[empty], sizes[empty] = 1.0, y.shape[1]
    return y / sizes, keep


def proportions(name: str, y: Any) -> Any:
    """Checked distributions, rows that sum to 1 to the last digit."""
    y = y.toarray() if sparse.issparse(y) else np.asarray(y)
    try:
        y = y.astype(np.float64)
    except (TypeError, ValueError):
        raise FenchelError(
            f"{name}: expected `y` of numbers, one proportion a label, but got dtype {y.dtype}."
        ) from None
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y).all(1))[0])
        raise FenchelError(
            f"{name}: expected finite proportions in `y`, but row {row} has NaN or inf; drop it."
        )
    if y.min() < 0:
        row = int(np.flatnonzero((y < 0).any(1))[0])
        raise FenchelError(
            f"{name}: expected proportions of at least 0 in `y`, but row {row} has "
            f"{y[row].min():g}."
        )
    totals = y.sum(1)
    wrong = np.flatnonzero(np.abs(totals - 1) > SUM_TOL)
    if wrong.size:
        raise FenchelError(
            f"{name}: expected rows of `y` that sum to 1, but row {wrong[0]} sums to "
            f"{totals[wrong[0]]:g}; divide each row by its sum."
        )
    return y / totals[:, None]
