"""What the float64 references share: the contract on shapes, masks and bad values; bisection."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

EPS = np.finfo(np.float64).eps
BISECTIONS = 64  # [0, 1] halved 64 times is below the last bit of any answer that matters


def on_rows(solve: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Give ``solve(rows, param_column)`` the library's contract on shapes, masks and bad values."""

    @functools.wraps(solve)
    def wrapped(x, param=np.nan):
        x = np.asarray(x, dtype=np.float64)
        rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(0, x.shape[-1])
        column = np.broadcast_to(np.asarray(param, dtype=np.float64).reshape(-1, 1), (len(rows), 1))
        bad = np.isnan(rows).any(-1) | np.isposinf(rows).any(-1)
        empty = ~bad & np.isneginf(rows).all(-1)
        fine = ~(bad | empty)
        p = np.zeros_like(rows)
        p[bad] = np.nan
        if fine.any():
            with np.errstate(all="ignore"):  # -inf - -inf and log(0) on masked entries
                p[fine] = solve(rows[fine], column[fine])
        return p.reshape(x.shape)

    return wrapped


def total(p: np.ndarray) -> np.ndarray:
    return p.sum(-1, keepdims=True)


def below_max(x: np.ndarray) -> np.ndarray:
    return x.max(-1, keepdims=True) - x  # >= 0, +inf where masked; exact for close scores


def bisect(is_low: Callable[[np.ndarray], np.ndarray], rows: int) -> np.ndarray:
    """The point of [0, 1] up to which ``is_low`` (a column of booleans) holds, per row."""
    low, high = np.zeros((rows, 1)), np.ones((rows, 1))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = is_low(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def last_supported(x: np.ndarray, mass_above: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The smallest score in the support, per row: the last one with ``mass_above`` < 1.

    ``mass_above(c)`` is the mass that the entries above c would have with the threshold at c; it
    grows as c falls, so the sorted row can be searched in log2(n) steps.
    """
    ordered = -np.sort(-x, axis=-1)
    low = np.zeros((len(x), 1), dtype=int)  # the maximum is always supported
    high = np.isfinite(x).sum(-1, keepdims=True)  # first index known to be outside
    while ((high - low) > 1).any():
        middle = (low + high) // 2
        inside = mass_above(np.take_along_axis(ordered, middle, -1)) < 1
        low, high = (
            np.where(inside, middle, low),
            np.where(inside, high, np.maximum(middle, low + 1)),
        )
    return np.take_along_axis(ordered, low, -1)


def tied_argmax(x: np.ndarray) -> np.ndarray:
    top = x == x.max(-1, keepdims=True)
    return top / total(top)


def power_below(top: np.ndarray, drop: np.ndarray, a1: np.ndarray) -> np.ndarray:
    """[top^a1 - drop]_+^(1/a1), stable as a1 -> 0: both terms of the argument have one sign."""
    return np.exp(np.log1p(np.maximum(np.expm1(a1 * np.log(top)) - drop, -1.0)) / a1)


def by_regime(x, alpha, *regimes):
    p = np.empty_like(x)
    for chosen, solve in regimes:
        rows = chosen[:, 0]
        if rows.any():
            p[rows] = solve(x[rows], alpha[rows])
    return p
