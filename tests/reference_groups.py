"""Independent float64 answers for the maps that make entries equal, row by row in Python.

fusedmax pulls a string taut through a tube around the running sums (the library merges groups or
solves a dynamic program); oscarmax pools adjacent violators of the sorted row. Sums start anew at
every bend and in every group, so that far entries cost no digits.
"""

from __future__ import annotations

import math

import numpy as np

from tests.reference_rows import on_rows


def _taut_string(y: list[float], lam: float) -> list[float]:
    """The prox of lam times the total variation: slopes of the shortest string in the tube."""
    n, z = len(y), []
    start, offset = 0, 0.0  # the string's height above the running sum, at its last bend
    while start < n:
        low, high, low_at, high_at, run = -math.inf, math.inf, start, start, 0.0
        for end in range(start + 1, n + 1):
            run += y[end - 1]
            width = lam if end < n else 0.0  # the end is pinned
            upper = (run - offset + width) / (end - start)
            lower = (run - offset - width) / (end - start)
            if upper < low:  # it must bend down, where it lies on the lower wall
                z += [low] * (low_at - start)
                start, offset = low_at, -lam
                break
            if lower > high:
                z += [high] * (high_at - start)
                start, offset = high_at, lam
                break
            if upper <= high:
                high, high_at = upper, end
            if lower >= low:
                low, low_at = lower, end
        else:
            z += [upper] * (n - start)
            start = n
    return z


def _pooled(y: list[float], lam: float) -> list[float]:
    """Non-increasing regression of y - lam (n - i), for y sorted downwards: relative to the top."""
    if math.isinf(lam):
        return [0.0] * len(y)
    groups: list[tuple[float, float, int]] = []  # sums of y and of n - i, and sizes
    for i, value in enumerate(y):
        total, ranks, size = value, float(len(y) - 1 - i), 1
        while groups:
            before, above, count = groups[-1]
            drop = before / count - total / size
            if drop - lam * (above / count - ranks / size) > 0:
                break
            groups.pop()
            total, ranks, size = total + before, ranks + above, size + count
        groups.append((total, ranks, size))
    top, highest, first = groups[0]
    levels = []
    for total, ranks, size in groups:
        level = (total / size - top / first) - lam * (ranks / size - highest / first)
        levels += [level] * size
    return levels


def _project(z: np.ndarray) -> np.ndarray:
    """Onto the simplex, by sorting; -inf stays out."""
    z = z - z.max()
    ordered = -np.sort(-np.maximum(z, -1))
    rank = np.arange(1, len(z) + 1)
    size = int((1 + rank * ordered > np.cumsum(ordered)).sum())
    return np.maximum(z - (math.fsum(ordered[:size]) - 1) / size, 0)


@on_rows
def fusedmax(x, lam):
    p = np.zeros_like(x)
    for row, strength, out in zip(x, lam[:, 0], p, strict=True):
        z = np.full(len(row), -np.inf)
        centred = row - row.max()
        open_ = np.flatnonzero(np.isfinite(row))
        for run in np.split(open_, np.flatnonzero(np.diff(open_) > 1) + 1):
            z[run] = _taut_string(centred[run].tolist(), float(strength))
        out[:] = _project(z)
    return p


@on_rows
def oscarmax(x, lam):
    p = np.zeros_like(x)
    for row, strength, out in zip(x, lam[:, 0], p, strict=True):
        z = np.full(len(row), -np.inf)
        order = np.argsort(-row, kind="stable")[: int(np.isfinite(row).sum())]
        z[order] = _pooled((row[order] - row.max()).tolist(), float(strength))
        out[:] = _project(z)
    return p
