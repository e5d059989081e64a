r"""Tsallis's entropy and its divergence, entry by entry, to the last digit.

Let :math:`a = \alpha - 1` and :math:`\log_a p = (p^a - 1)/a`, which is :math:`\log p` at
:math:`a = 0`. At :math:`p = 0` it is :math:`-1/a` for :math:`a > 0` and minus infinity otherwise.
Then :math:`\nabla_i \Omega(p) = \log_a p_i + 1/\alpha`, and the Bregman divergence is a sum of
non-negative terms,

.. math:: d(q, p) = \frac{p^\alpha - q^\alpha}{\alpha} + q (\log_a q - \log_a p).

The loss is the same sum with :math:`\log_a p_i` continued below 0: by optimality it is
:math:`\theta_i` up to a constant on the support, and :math:`\theta_i` minus that constant off it.
Close to :math:`p = q` all of :math:`d` cancels; with :math:`\ell = \log(p/q)`,

.. math:: d(q, p) = q^\alpha \ell^2 \left( \alpha R(\alpha \ell) - a R(a \ell) \right),
    \qquad R(y) = (e^y - 1 - y) / y^2.

Below :math:`\alpha = 1` powers are near 1 however far :math:`p` is from :math:`q`, and the first
quotient cancels: there :math:`d(q, p) = q^\alpha \ell \, (E(\alpha \ell) - E(a \ell))` with
:math:`E(y) = (e^y - 1)/y`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter
from fenchel._special import expm1_over, expm1_over_slope, second_remainder

LARGE = 1e15  # from here on alpha is as good as infinite, and its products are still finite


def log_a(p: Tensor, alpha: Parameter) -> Tensor:
    """(p^a - 1) / a."""
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return p.log()
        if alpha == math.inf:
            return p - p
    a = _excess(alpha)
    inside = p != 0
    logs = torch.where(inside, p, 1.0).log()
    value = torch.where(inside, logs * expm1_over(a * logs), _log_a_of_zero(a))
    return torch.where(alpha == math.inf, 0.0, value) if isinstance(alpha, Tensor) else value


def weighted_log(p: Tensor, alpha: Parameter) -> Tensor:
    """p log_a(p), which is 0 at p = 0 for every alpha."""
    levels = log_a(p, alpha)
    if isinstance(alpha, Tensor):
        return p * torch.where((p == 0) & (alpha < 1), 0.0, levels)
    return p * (torch.where(p == 0, 0.0, levels) if alpha < 1 else levels)


def omega(p: Tensor, alpha: Parameter) -> Tensor:
    """Tsallis's negative entropy along the last axis."""
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return torch.xlogy(p, p).sum(-1)
        if alpha == math.inf:
            return (p - p).sum(-1)
        return weighted_log(p, alpha).sum(-1) / alpha
    return (weighted_log(p, alpha) / _finite(alpha)).sum(-1)


def slope(p: Tensor, alpha: Parameter) -> Tensor:
    """The derivative of omega in alpha at fixed p, shape (*rows, 1)."""
    alpha = _finite(alpha)
    a = alpha - 1
    logs = torch.where(p != 0, p, 1.0).log()
    first = p * logs * expm1_over(a * logs)
    second = p * logs * logs * expm1_over_slope(a * logs)
    return (second / alpha - first / (alpha * alpha)).sum(-1, keepdim=True)


def divergence(q: Tensor, p: Tensor, alpha: Parameter, scores: Tensor | None = None) -> Tensor:
    """The Bregman divergence from p to q; with ``scores`` the loss, p being their map."""
    levels = log_a(p, alpha)
    if scores is not None:
        best = p.argmax(-1, keepdim=True)
        below = scores - scores.gather(-1, best) + levels.gather(-1, best)
        below = torch.where(scores == -math.inf, -math.inf, below)
        levels = torch.where(p == 0, below, levels)
    if not isinstance(alpha, Tensor) and alpha == math.inf:
        return torch.where(q == 0, p - p, -q * levels).sum(-1)
    alpha = _finite(alpha)
    far = (_power(p, alpha) - _power(q, alpha)) / alpha
    far = far + q * torch.where(q == 0, 0.0, log_a(q, alpha) - levels)
    both = (p > 0) & (q > 0)
    ratio = torch.where(both, p / torch.where(both, q, 1.0), 1.0).log()
    if isinstance(alpha, Tensor):
        low = both & (alpha < 1)
        far = torch.where(low, _divergence_below_1(q, torch.where(low, ratio, 0.0), alpha), far)
        close = both & (ratio.abs() * torch.maximum(alpha, 1 - alpha) < 0.5)
    else:
        if alpha < 1:
            far = torch.where(both, _divergence_below_1(q, ratio, alpha), far)
        close = both & (ratio.abs() * max(alpha, 1 - alpha) < 0.5)
    ratio = torch.where(close, ratio, 0.0)
    curve = alpha * second_remainder(alpha * ratio)
    curve = curve - (alpha - 1) * second_remainder((alpha - 1) * ratio)
    near = _power(q, alpha) * ratio * ratio * curve
    terms = torch.where(close, near, far)
    return torch.where(terms < 0, 0.0, terms).sum(-1)  # rounding; a NaN stays


def _divergence_below_1(q: Tensor, ratio: Tensor, alpha: Parameter) -> Tensor:
    """d(q, p) from the logarithm of p / q, where both are positive."""
    return _power(q, alpha) * ratio * (expm1_over(alpha * ratio) - expm1_over((alpha - 1) * ratio))


def _log_a_of_zero(a: Parameter) -> Parameter:
    if isinstance(a, Tensor):
        return torch.where(a > 0, -1.0 / a, -math.inf)
    return -1.0 / a if a > 0 else -math.inf


def _power(p: Tensor, alpha: Parameter) -> Tensor:
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return p
        if alpha == 1.5:
            return p * p.sqrt()
    return p.pow(alpha)


def _finite(alpha: Parameter) -> Parameter:
    return alpha.clamp(max=LARGE) if isinstance(alpha, Tensor) else min(alpha, LARGE)


def _excess(alpha: Parameter) -> Parameter:
    """alpha - 1, never 0 in a tensor: -1/a then is -1e30, and 0 times it is 0."""
    if not isinstance(alpha, Tensor):
        return _finite(alpha) - 1
    a = alpha.clamp(max=LARGE) - 1
    return torch.where(a == 0, a + 1e-30, a)
