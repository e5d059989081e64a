"""Float64 and 50-digit answers for the maps of power sums: the squared norm, Rényi's entropy.

As in ``tests.reference``, nothing here is a Newton iteration: NumPy bisects to the last bit, on
another variable or another equation than the library's, and mpmath solves in 110 digits. Accuracy
against mpmath on 3000 hard rows each (``test_power_maps.py`` repeats a part): max error 5e-16.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np

from tests.reference_rows import (
    below_max,
    bisect,
    by_regime,
    last_supported,
    on_rows,
    tied_argmax,
    total,
)


def _mass(log_z, q):
    """Sum of u / ||u||_q^(2-q), u = z^(1/(q-1)); by the ratios to the largest against underflow."""
    top = log_z.max(-1, keepdims=True)
    log_u = (log_z - np.where(top == -np.inf, 0, top)) / (q - 1)
    powers = np.exp(log_u * (q - 1) + log_u)  # not u^q, which multiplies u's rounding by q
    return np.exp(top) * total(np.exp(log_u)) * total(powers) ** (1 - 2 / q)


def _answer(log_z, q):
    u = np.exp((log_z - log_z.max(-1, keepdims=True)) / (q - 1))
    return u / total(u)


def _low(x, q):  # 1 < q <= 2: by the largest u = z^(1/(q-1))
    below = below_max(x)

    def log_z(top):
        return np.log1p(np.maximum(np.expm1((q - 1) * np.log(top)) - below, -1.0))

    return _answer(log_z(bisect(lambda top: _mass(log_z(top), q) < 1, len(x))), q)


def _high(x, q):  # q > 2: by the smallest u of the support
    least = last_supported(x, lambda c: _mass(np.log(np.maximum(x - c, 0)), q))
    log_above = np.where(x >= least, np.log(x - least), np.nan)  # -inf for the least

    def log_z(log_y):
        return np.where(x >= least, np.logaddexp(log_y, log_above), -np.inf)

    # The smallest u may be near 0 or, for a large q, a hair below 1: two scales to bisect on.
    def far(fraction):  # u in [0, 1/2]
        return (q - 1) * np.log(fraction / 2)

    def near(fraction):  # log z from 0 down to where u is 1/2
        return far(1.0) * fraction

    by_far = bisect(lambda f: _mass(log_z(far(f)), q) < 1, len(x))
    by_near = bisect(lambda f: _mass(log_z(near(f)), q) >= 1, len(x))
    return _answer(log_z(np.where(by_far < 1, far(by_far), near(by_near))), q)


def _infinite(x, _):
    """By the cap m on all entries: filled up from the best, one more unit of m is worth m."""
    ordered = -np.sort(-x, axis=-1)
    p = np.empty_like(x)
    for i, row in enumerate(ordered):
        row = row[np.isfinite(row)]
        best = np.concatenate([row, [-np.inf]])
        low, high = 1 / len(row), 1.0
        for _ in range(60):
            m = (low + high) / 2
            full = int(1 / m)
            worth = np.sum(best[:full] - best[full])
            low, high = (m, high) if worth > m else (low, m)
        full = min(int(1 / high + 1e-9), len(row))
        filled = np.zeros_like(row)
        filled[:full] = high
        if full < len(row):
            filled[full] = max(1 - full * high, 0)
        for j, value in enumerate(x[i]):
            p[i, j] = filled[row == value].mean() if np.isfinite(value) else 0
    return p


@on_rows
def sq_pnorm_max(x, q):
    return by_regime(
        x, q,
        (q == 1, lambda x, _: tied_argmax(x)),
        ((q > 1) & (q <= 2), _low),
        ((q > 2) & (q < np.inf), _high),
        (q == np.inf, _infinite),
    )  # fmt: skip


def _heavy_tails(x, beta):
    """With v = max + c s - x: s sum(rho^c) = sum(rho^(c+1)), rho = 1 / (1 + d / (c s))."""
    c, below = beta / (1 - beta), below_max(x)

    def log_rho(s):
        return -np.log1p(below / (c * s))

    def too_low(s):
        logs = log_rho(s)
        return s * total(np.exp(c * logs)) < total(np.exp((c + 1) * logs))

    p = np.exp((c + 1) * log_rho(bisect(too_low, len(x))))
    return p / total(p)


@on_rows
def renyimax(x, beta):
    def softmax(x, _):
        e = np.exp(-below_max(x))
        return e / total(e)

    return by_regime(x, beta, (beta == 1, softmax), (beta < 1, _heavy_tails))


# --------------------------------------------------------------------------------------- mpmath


def _root(f, low, high):
    """Where the increasing f is 0: bisection until close, then the secant's bracketing cousin."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    if f(low) >= 0 or f(high) <= 0:
        return high
    return mp.findroot(f, (low, high), solver="anderson", tol=mp.mpf(10) ** -140, verify=False)


def mp_sq_pnorm_max(x, q):
    with mp.workdps(110):
        x, q = [mp.mpf(float(v)) for v in x], mp.mpf(q)
        a = q - 1

        def mass(gaps):
            u = [z ** (1 / a) for z in gaps if z > 0]
            return mp.fsum(u) * mp.fsum(v**q for v in u) ** (1 - 2 / q) if u else mp.mpf(0)

        lowest = min(c for c in x if mass([v - c for v in x]) < 1)

        def gaps(t):  # x_i - tau, from the largest or, above 2, the smallest of the support
            if q <= 2:
                return [t - (max(x) - v) for v in x]
            return [t**a + (v - lowest) if v >= lowest else mp.mpf(0) for v in x]

        z = gaps(_root(lambda t: mass(gaps(t)) - 1, mp.mpf(0), mp.mpf(1)))
        u = [v ** (1 / a) if v > 0 else mp.mpf(0) for v in z]
        return np.array([float(v / mp.fsum(u)) for v in u])


def mp_renyimax(x, beta):
    with mp.workdps(110):
        x, beta = [mp.mpf(float(v)) for v in x], mp.mpf(beta)
        c, top = beta / (1 - beta), max(x)

        def p_of(s):
            w = [(1 + (top - v) / (c * s)) ** (-c - 1) for v in x]
            return [v / mp.fsum(w) for v in w]

        def excess(s):  # mean of lambda - x under p, against c
            p = p_of(s)
            return mp.fsum(w * (top - v + c * s) for w, v in zip(p, x, strict=True)) - c

        return np.array([float(v) for v in p_of(_root(excess, mp.mpf(10) ** -30, mp.mpf(1)))])
