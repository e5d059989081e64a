r"""The Jacobian that maps of power sums share: an inverse Hessian that is diagonal minus rank one.

Let :math:`S = \sum_i p_i^e` and :math:`t_i = S p_i^{2-e}` on the support, 0 off it. For the squared
norm (:math:`e = q`) and Rényi's entropy (:math:`e = \beta`) the Hessian of Ω has, up to a number,
the inverse :math:`\operatorname{diag}(t) - c\, p p^\top`, with the share :math:`c = 2 - q` and
:math:`c = \beta`. With :math:`h = t - c p` and :math:`\sigma = \sum_i t_i - c`, the Jacobian on the
simplex is

.. math::
    J = \operatorname{diag}(t) - c\, p p^\top - h h^\top / \sigma, \qquad
    J v = t (v - m) - c\, p (\langle p, v \rangle - m), \quad m = \langle h, v \rangle / \sigma.

J does not change when a number is added to v. By Cauchy and Schwarz :math:`\sum_i t_i` is 1 plus
:math:`V = \sum_i (\sqrt{S} p_i^{1-e/2} - p_i^{e/2} / \sqrt{S})^2`. Where V is small, the terms of h
and of σ may cancel (c near 1): there σ is V + (1 - c), and v is taken relative to its mean under p,
which leaves only m small. Where V is large, an entry of t is (a small p for e > 2, a large one for
a small e): there v is taken relative to the entry with the largest t, and nothing large is left to
cancel.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter


def power_sum(p: Tensor, exponent: Parameter, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest p, log(p / largest) (0 off the support), and sum((p / largest)^exponent)."""
    inside = p != 0
    peak = p.amax(dim, keepdim=True)
    peak = torch.where(peak == 0, 1.0, peak)  # a fully masked row
    logs = torch.where(inside, p / peak, 1.0).log()
    powers = torch.where(inside, (exponent * logs).exp(), 0.0).sum(dim, keepdim=True)
    return peak, logs, torch.where(powers == 0, 1.0, powers)


def power_product(
    p: Tensor, exponent: Parameter, share: Parameter, vector: Tensor, dim: int
) -> Tensor:
    """J at output ``p`` times ``vector``."""
    inside = p != 0
    peak, logs, powers = power_sum(p, exponent, dim)
    # Past the square root of the largest number t is as good as infinite; products stay finite.
    cut = math.log(torch.finfo(p.dtype).max) / 4
    half = torch.where(inside, ((1 - exponent / 2) * logs).clamp(max=cut).exp(), 0.0)
    t = peak * peak * powers * half * half
    largest = t.detach().argmax(dim, keepdim=True)
    vector = torch.where(inside, vector - vector.gather(dim, largest), 0.0)
    mean = (p * vector).sum(dim, keepdim=True)
    root = powers.sqrt()
    gaps = peak * root * half - torch.where(inside, (exponent / 2 * logs).exp(), 0.0) / root
    spread = (gaps * gaps).sum(dim, keepdim=True)
    small = spread < 1
    reference = torch.where(small, mean, 0.0)
    vector = torch.where(inside, vector - reference, 0.0)
    left = mean - reference
    sigma = torch.where(small, spread + (1 - share), t.sum(dim, keepdim=True) - share)
    sigma = torch.where(sigma == 0, 1.0, sigma)  # a fully masked row
    # Within a rounding of c = 1 both h and sigma are noise, and their quotient is not needed.
    moves = 1 - share > torch.finfo(p.dtype).eps
    weighted = (t * vector).sum(dim, keepdim=True) - share * left
    shift = _choose(moves, weighted / _choose(moves, sigma, 1.0), 0.0)
    return t * (vector - shift) - share * p * (left - shift)


def _choose(condition: bool | Tensor, yes: Tensor, no: Tensor | float) -> Tensor:
    """torch.where, for a condition that may be a Python bool."""
    if isinstance(condition, Tensor):
        return torch.where(condition, yes, no)
    return yes if condition else torch.zeros_like(yes) + no
