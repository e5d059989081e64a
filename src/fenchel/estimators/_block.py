r"""One block of the dual: all of :math:`\beta_i`, the other rows held still.

With :math:`\theta_i` the scores of the row and :math:`\sigma_i = w_i (C \|x_i\|^2 + \rho)` the dual
objective in :math:`\beta_i` is, up to a constant and the factor :math:`w_i`,

.. math:: \max_{\beta \in \triangle}\ \langle \theta_i, \beta \rangle - \Omega(\beta) -
    \frac{\sigma_i}{2} \|\beta - \beta_i\|^2 .

For a multiple of Tsallis's entropy this is solved exactly: :math:`\log_a \beta_j + \sigma \beta_j =
s_j - \tau` with :math:`s = \theta + \sigma \beta_i`, one root for :math:`\tau`; at α = 2 it is the
projection of :math:`s / (1 + \sigma)`. For every other Ω the step is an exact line search from
:math:`\beta_i` to :math:`\hat y_\Omega(\theta_i)`, which is an ascent direction wherever the two
differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fenchel.estimators._oracle import Oracle
from fenchel.estimators._sklearn import np, wrightomega

#: (θ, β, σ) to the new β; all are rows of one problem, σ is a number above 0.
Block = Callable[[Any, Any, float], Any]

_ROOT_STEPS = 100
_GRID = np.linspace(0.0, 1.0, 33)
_REFINEMENTS = 3


def choose_block(oracle: Oracle) -> Block:
    """The step that suits Ω."""
    if oracle.alpha is None:
        return lambda theta, beta, sigma: line_search(oracle, theta, beta, sigma)
    alpha, gamma = oracle.alpha, oracle.gamma
    if alpha == 2.0:
        return lambda theta, beta, sigma: project((theta + sigma * beta) / (gamma + sigma))
    return lambda theta, beta, sigma: tsallis(theta / gamma, beta, alpha, sigma / gamma)


def project(s: Any) -> Any:
    """Euclidean projection of one row onto the simplex: Michelot's method."""
    s = s - s.max()
    kept = s[s > -1.0]
    while True:
        tau = (kept.sum() - 1.0) / kept.size
        above = kept > tau
        if above.all():
            return np.maximum(s - tau, 0.0)
        kept = kept[above]


def tsallis(theta: Any, old: Any, alpha: float, sigma: float) -> Any:
    """The block for Ω_α: a safeguarded Newton method for τ, from where the old β has it."""
    a = alpha - 1.0
    s = theta + sigma * old
    s -= s.max()
    low, high = -sigma, -_log(1.0 / s.size, a) - sigma / s.size  # the best entry is 1, or 1/n
    best = old.argmax()
    tau = min(max(s[best] - _log(old[best], a) - sigma * old[best], low), high)
    for _ in range(_ROOT_STEPS):
        beta = _entries(s - tau, a, sigma)
        excess = float(beta.sum()) - 1.0
        if excess > 0:
            low = tau
        else:
            high = tau
        if abs(excess) <= 1e-14 or high - low <= 1e-16 * max(1.0, abs(high)):
            break
        inside = beta[beta > 0]
        rate = float((inside / (inside**a + sigma * inside)).sum()) if inside.size else 0.0
        following = tau + excess / rate if rate > 0 else low
        tau = following if low < following < high else 0.5 * (low + high)
    return beta / beta.sum()


def _log(p: float, a: float) -> float:
    """(p^a − 1) / a."""
    return math.log(p) if a == 0 else math.expm1(a * math.log(p)) / a


def _entries(z: Any, a: float, sigma: float) -> Any:
    """The β ≥ 0 with log_a β + σ β = z, entry by entry; 0 where z is below −1/a, for a > 0."""
    if a == 0:
        return wrightomega(z + math.log(sigma)) / sigma
    if a < 0:
        # Convex and decreasing in β^a: Newton's method from the left, where one of the terms is 0.
        r = np.maximum(1.0 + a * z, np.maximum(1.0, z / sigma) ** a)
        for _ in range(_ROOT_STEPS):
            power = r ** (1.0 / a - 1.0)
            step = (a * z - (r - 1.0) - a * sigma * r * power) / (1.0 + sigma * power)
            r = r + step
            if (step / r).max() <= 1e-15:
                break
        return r ** (1.0 / a)
    u = np.maximum(z + 1.0 / a, 0.0)
    if a == 0.5:
        root = u / (1.0 + np.sqrt(1.0 + sigma * u))
        return root * root
    # Newton's method on a convex increasing function, from the right: in β^a if a < 1, else in β.
    if a < 1:
        r = a * u
        for _ in range(_ROOT_STEPS):
            power = r ** (1.0 / a - 1.0)
            step = (r / a + sigma * r * power - u) / (1.0 / a + sigma / a * power)
            r = np.maximum(r - step, 0.0)
            if step.max() <= 1e-15:
                break
        return r ** (1.0 / a)
    beta = np.minimum((a * u) ** (1.0 / a), u / sigma)
    for _ in range(_ROOT_STEPS):
        power = beta ** (a - 1.0)
        step = (beta * power / a + sigma * beta - u) / (power + sigma)
        beta = np.maximum(beta - step, 0.0)
        if step.max() <= 1e-15:
            break
    return beta


def line_search(oracle: Oracle, theta: Any, beta: Any, sigma: float) -> Any:
    """The best point between β and the map of θ, for any Ω."""
    direction = oracle.predict(theta[None])[0] - beta
    moving = direction != 0
    if not moving.any():
        return beta
    slope, square = float(theta @ direction), sigma * float(direction @ direction)
    low, width, last = 0.0, 1.0, 0.0
    for _ in range(_REFINEMENTS):
        steps = low + width * _GRID
        gradients = oracle.slope(beta + steps[:, None] * direction)
        rates = gradients[:, moving] @ direction[moving] - slope + steps * square
        rising = np.flatnonzero(rates >= 0)
        if not rising.size:
            low, last = low + width, 0.0
            break
        if rising[0] == 0:
            break
        at = int(rising[0])
        low, width = float(steps[at - 1]), width / (_GRID.size - 1)
        if math.isfinite(rates[at - 1]) and math.isfinite(rates[at]):
            last = width * float(rates[at - 1] / (rates[at - 1] - rates[at]))
    return beta + (low + last) * direction
