"""Independent float64 answers for every map, in NumPy, and 50-digit ones in mpmath.

Nothing here is a Newton iteration for a threshold over candidates, which is what the library does.
The closed forms (sparsemax, entmax15) sort the row; the others bisect, to the last bit, on a
variable in which the equation is well conditioned. Every function takes ``(n,)`` or ``(rows, n)``
scores and a parameter that is a number or one number per row, so that 10^5 rows are cheap.

Which variable to bisect on matters more than how. With tau the threshold, entmax is
p_i = ((alpha-1)(x_i - tau))^(1/(alpha-1)), so dp_i/dp_j = (p_j/p_i)^(alpha-2) as tau moves. For
alpha < 2 that is at most 1 when p_j is the largest probability, and for alpha >= 2 when p_j is the
smallest one of the support: the error of the sum then bounds the error of the answer.

Accuracy measured against mpmath on 3000 hard rows a map (see ``test_values.py``, which repeats a
part of it; alpha from 1 + 1e-6 to 1e4, scales 1e-8 to 1e8, ties, shifts): max error 6e-16 for
softmax, sparsemax, entmax15, entmax, budget, and normmax at alpha <= 2. Above 2 normmax is not
Lipschitz where an entry enters the support: 7e-15, and always within ``normmax_uncertainty``.
Entmax below 1 has a file of its own, ``test_heavy_tails.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import mpmath as mp
import numpy as np
from scipy.special import expit

from tests.reference_groups import fusedmax, oscarmax
from tests.reference_powers import renyimax, sq_pnorm_max
from tests.reference_rows import (
    EPS,
    below_max,
    bisect,
    by_regime,
    last_supported,
    on_rows,
    power_below,
    tied_argmax,
    total,
)


@on_rows
def softmax(x, _):
    e = np.exp(-below_max(x))
    return e / total(e)


@on_rows
def sparsemax(x, _):
    z = -below_max(x)
    ordered = -np.sort(
        -np.maximum(z, -1), axis=-1
    )  # an entry 1 below the maximum is already outside
    rank = np.arange(1, z.shape[-1] + 1)
    inside = 1 + rank * ordered > np.cumsum(ordered, -1)
    size = total(inside)
    tau = (np.where(inside, ordered, 0).sum(-1, keepdims=True) - 1) / size
    return np.maximum(z - tau, 0)


@on_rows
def entmax15(x, _):
    z = -below_max(x) / 2
    ordered = -np.sort(-np.maximum(z, -1), axis=-1)
    rank = np.arange(1, z.shape[-1] + 1)
    mean = np.cumsum(ordered, -1) / rank
    scatter = np.cumsum(ordered**2, -1) - rank * mean**2
    inside = mean - np.sqrt(np.maximum(1 - scatter, 0) / rank) < ordered
    size = total(inside)
    inside = rank <= size
    # The running sums cancel; with the support known, take mean and scatter again in two passes.
    mean = np.where(inside, ordered, 0).sum(-1, keepdims=True) / size
    scatter = np.where(inside, (ordered - mean) ** 2, 0).sum(-1, keepdims=True)
    return np.maximum(z - (mean - np.sqrt((1 - scatter) / size)), 0) ** 2


def _entmax_low(x, alpha):  # 0 < alpha < 2, but not 1: by the largest probability
    a1, below = alpha - 1, below_max(x)

    def p_of(top):
        return power_below(top, a1 * below, a1)

    return p_of(bisect(lambda top: total(p_of(top)) < 1, len(x)))


def _entmax_high(x, alpha):  # alpha >= 2: by the smallest probability of the support
    a1 = alpha - 1
    least = last_supported(x, lambda c: total(np.maximum(a1 * (x - c), 0) ** (1 / a1)))
    above = a1 * (x - least)

    def p_of(low):
        higher = (low**a1 + np.maximum(above, 0)) ** (1 / a1)
        return np.where(above > 0, higher, np.where(above == 0, low, 0))

    return p_of(bisect(lambda low: total(p_of(low)) < 1, len(x)))


def _normmax_low(x, alpha):  # 1 < alpha < 2: by the largest p_i / |p|
    a1, below = alpha - 1, below_max(x)
    top = bisect(lambda top: total(power_below(top, below, a1) ** alpha) < 1, len(x))
    v = power_below(top, below, a1)
    return v / total(v)


def _normmax_gaps(x, alpha):
    """x_i - tau for alpha >= 2, by the smallest positive one; -inf outside the support."""
    power = alpha / (alpha - 1)

    def mass(t):
        return total(np.maximum(t, 0) ** power)

    least = last_supported(x, lambda c: mass(x - c))
    above = np.where(x >= least, x - least, -np.inf)
    return above + bisect(lambda gap: mass(above + gap) < 1, len(x))


def _normmax_high(x, alpha):
    v = np.maximum(_normmax_gaps(x, alpha), 0) ** (1 / (alpha - 1))
    return v / total(v)


@on_rows
def entmax(x, alpha):
    return by_regime(
        x, alpha,
        (alpha == 1, lambda x, _: softmax(x)),
        ((alpha > 0) & (alpha < 2) & (alpha != 1), _entmax_low),
        ((alpha >= 2) & (alpha < np.inf), _entmax_high),
        (alpha == np.inf, lambda x, _: tied_argmax(x)),
    )  # fmt: skip


@on_rows
def normmax(x, alpha):
    return by_regime(
        x, alpha,
        (alpha == 1, lambda x, _: tied_argmax(x)),
        ((alpha > 1) & (alpha < 2), _normmax_low),
        ((alpha >= 2) & (alpha < np.inf), _normmax_high),
        (alpha == np.inf, lambda x, _: _uniform_on_sparsemax(x)),
    )  # fmt: skip


def _uniform_on_sparsemax(x):
    support = x >= last_supported(x, lambda c: total(np.maximum(x - c, 0)))
    return support / total(support)


@on_rows
def budget(x, k):
    available = np.isfinite(x).sum(-1, keepdims=True)
    # The ceil(k)-th largest score lies within 1 above the threshold: measured from it, every score
    # near the threshold is exact, however large the scores are.
    rank = np.clip(np.ceil(k).astype(int), 1, available) - 1
    z = x - np.take_along_axis(-np.sort(-x, axis=-1), rank, -1)
    minus_tau = bisect(lambda t: total(np.clip(z + t, 0, 1)) < k, len(x))
    return np.where(k >= available, np.isfinite(x), np.clip(z + minus_tau, 0, 1))


@on_rows
def logistic_budget(x, k):
    available = np.isfinite(x).sum(-1, keepdims=True)
    # As in budget: tau is near the ceil(k)-th largest score wherever anything moves.
    rank = np.clip(np.ceil(k).astype(int), 1, available) - 1
    z = x - np.take_along_axis(-np.sort(-x, axis=-1), rank, -1)

    def p_of(t):  # by minus tau, from -800 to 800
        return expit(z + 1600 * (t - 0.5))

    p = p_of(bisect(lambda t: total(p_of(t)) < k, len(x)))
    return np.where(k >= available, np.isfinite(x), np.where(k == 0, 0, p))


REFERENCE: dict[str, Callable[..., np.ndarray]] = {
    "logistic_budget": logistic_budget,
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "entmax": entmax,
    "normmax": normmax,
    "budget": budget,
    "sq_pnorm_max": sq_pnorm_max,
    "renyimax": renyimax,
    "fusedmax": fusedmax,
    "oscarmax": oscarmax,
}


def normmax_uncertainty(x, alpha) -> np.ndarray:
    """What an error of a few float64 roundings in the threshold does to a row's answer.

    An entry at distance t inside the support has p ~ t^(1/(alpha-1)): for alpha > 2 the slope at
    t = 0 is infinite, and at alpha = inf the answer jumps. No float64 algorithm can know its
    answer better than this, whatever it does; for alpha <= 2 the slope is at most 1.
    """
    x = np.asarray(x, dtype=np.float64)
    rows = x.reshape(-1, x.shape[-1])
    column = np.broadcast_to(np.asarray(alpha, dtype=np.float64).reshape(-1, 1), (len(rows), 1))
    bound = np.zeros((len(rows), 1))
    steep = (column[:, 0] > 2) & np.isfinite(rows.max(-1))
    if steep.any():
        with np.errstate(all="ignore"):
            alpha, scores = np.minimum(column[steep], 1e300), rows[steep]
            gaps = _normmax_gaps(scores, alpha)
            last = np.where(gaps > 0, gaps, np.inf).min(-1, keepdims=True)
            least = np.where(gaps > 0, scores, np.inf).min(-1, keepdims=True)
            # The nearest change of support: the last entry leaves, or the next one enters.
            next_ = np.where(scores < least, (least - scores) - last, np.inf).min(-1, keepdims=True)
            t, power = np.minimum(last, np.abs(next_)), 1 / (alpha - 1)
            error = 8 * EPS * (1 + np.log2(x.shape[-1]))
            smooth = power * (t / 2) ** (power - 1) * error
            bound[steep] = 2 * np.where(t > 2 * error, smooth, error**power)
    return bound.reshape((*x.shape[:-1], 1))


# --------------------------------------------------------------------------------------- mpmath


def _newton(f, slope, start):
    """The root of a convex increasing function from a point right of it: monotone, no bracket."""
    for _ in range(2000):
        step = f(start) / slope(start)
        start -= step
        if abs(step) < mp.mpf(10) ** -75:
            return start
    raise ArithmeticError("mpmath reference did not converge")


def _mp_entmax(x, alpha):
    x, a1 = [mp.mpf(float(v)) for v in x], mp.mpf(alpha) - 1
    if a1 == 0:
        e = [mp.exp(v - max(x)) for v in x]
        return [v / mp.fsum(e) for v in e]

    if a1 < 0:  # dense: by z = p^a1 of the maximum, in which the sum is convex and decreasing
        depths = [max(x) - v for v in x]

        def dense(z):
            return [(z - a1 * depth) ** (1 / a1) for depth in depths]

        def dense_slope(z):
            return mp.fsum((z - a1 * depth) ** (1 / a1 - 1) for depth in depths) / a1

        return dense(_newton(lambda z: mp.fsum(dense(z)) - 1, dense_slope, mp.mpf(1)))

    def power(t):
        return t ** (1 / a1) if t > 0 else mp.mpf(0)

    if a1 < 1:
        anchor = max(x)
    else:
        inside = [c for c in x if mp.fsum(power(a1 * (v - c)) for v in x if v > c) < 1]
        anchor = min(inside)
        x = [v if v >= anchor else None for v in x]

    def p_of(q):  # all probabilities from the anchor's; a power is exact to 110 digits, so is a tie
        return [mp.mpf(0) if v is None else power(q**a1 + a1 * (v - anchor)) for v in x]

    def slope(q):
        return mp.fsum((q / p) ** (a1 - 1) for p in p_of(q) if p > 0)

    return p_of(_newton(lambda q: mp.fsum(p_of(q)) - 1, slope, mp.mpf(1)))


def _mp_normmax(x, alpha):
    x, b = [mp.mpf(float(v)) for v in x], 1 / (mp.mpf(alpha) - 1)
    highest = max(x)

    def gaps(top):  # x_i - tau, from that of the maximum
        return [max(top - (highest - v), mp.mpf(0)) for v in x]

    top = _newton(
        lambda top: mp.fsum(t ** (1 + b) for t in gaps(top)) - 1,
        lambda top: (1 + b) * mp.fsum(t**b for t in gaps(top)),
        mp.mpf(1),
    )
    v = [t**b for t in gaps(top)]
    return [t / mp.fsum(v) for t in v]


def _with_digits(f):
    @functools.wraps(f)
    def wrapped(x, alpha):
        with mp.workdps(110):  # 50 are left after the cancellations and the differences below
            return np.array([float(v) for v in f(x, alpha)])

    return wrapped


def _derivative(f):
    """df/dalpha by central differences in 110 digits; one-sided, of third order, at alpha = 1."""

    def wrapped(x, alpha):
        h, a = mp.mpf(10) ** -20, mp.mpf(alpha)
        if alpha == 1:
            at = zip(*(f(x, a + i * h) for i in range(4)), strict=True)
            return [(-11 * f0 + 18 * f1 - 9 * f2 + 2 * f3) / (6 * h) for f0, f1, f2, f3 in at]
        return [(up - down) / (2 * h) for up, down in zip(f(x, a + h), f(x, a - h), strict=True)]

    return wrapped


mp_entmax = _with_digits(_mp_entmax)
mp_normmax = _with_digits(_mp_normmax)
mp_entmax_dalpha = _with_digits(_derivative(_mp_entmax))
mp_normmax_dalpha = _with_digits(_derivative(_mp_normmax))
