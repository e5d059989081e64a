r"""The curve of entmax, entry by entry: what its derivatives are made of.

With :math:`s_i = p_i^{2-\alpha}` on the support and 0 off it, the Jacobian is
:math:`\operatorname{diag}(s) - s s^\top / \sum_i s_i`.

In :math:`\alpha`, write :math:`a = \alpha - 1`, :math:`\ell_i = \log p_i`. At a fixed
threshold, :math:`\partial p_i / \partial \alpha = -d_i` with :math:`d_i = p_i \ell_i^2
\varphi(a \ell_i)`, :math:`\varphi(y) = (e^{-y} - 1 + y) / y^2`, which is smooth at
:math:`a = 0`; the threshold moves so that the sum stays 1, which subtracts the mean of
:math:`d` with weights :math:`s`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter
from fenchel._special import second_remainder


def sensitivity(p: Tensor, alpha: Parameter) -> Tensor:
    """p^(2 - alpha) on the support, 0 off it, NaN where p is."""
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return p
        if alpha == 2:
            return torch.where(p == 0, 0.0, torch.where(p.isnan(), p, 1.0))
        if alpha == math.inf:
            return torch.zeros_like(p) * p
    inside = p != 0
    power = (2 - _finite(alpha)) * torch.where(inside, p, 1.0).log()
    # Past the square root of the largest number s is as good as infinite; products stay finite.
    cut = math.log(torch.finfo(p.dtype).max) / 2
    s = torch.where(inside, power.clamp(max=cut).exp(), 0.0)
    return _flat_at_infinity(s, alpha)


def drift(p: Tensor, alpha: Parameter) -> Tensor:
    """d: how far p falls as alpha grows at a fixed threshold, up to a multiple of s (drops out)."""
    logs = torch.where(p != 0, p, 1.0).log()
    a = _finite(alpha) - 1
    if isinstance(a, Tensor):
        steep_a = a.clamp(min=1.0)
        # Each branch is kept finite where the other is taken: NaN would leak from it backwards.
        flat = p * logs * logs * second_remainder(-a.clamp(max=1.0) * logs)
        d = torch.where(a > 1, p * (steep_a * logs - 1) / (steep_a * steep_a), flat)
    elif a > 1:
        # d is then dominated by s / a^2, a multiple of s: left away.
        d = p * (a * logs - 1) / (a * a)
    else:
        d = p * logs * logs * second_remainder(-a * logs)
    return _flat_at_infinity(d, alpha)


def _finite(alpha: Parameter) -> Parameter:
    """alpha, cut off where nothing changes any more: inf times 0 would be NaN."""
    return alpha.clamp(max=1e15) if isinstance(alpha, Tensor) else min(alpha, 1e15)


def _flat_at_infinity(value: Tensor, alpha: Parameter) -> Tensor:
    """argmax does not move with its scores or with alpha."""
    if isinstance(alpha, Tensor):
        return torch.where(alpha == math.inf, 0.0, value)
    return value


def nonzero(total: Tensor) -> Tensor:
    """The total, or 1 where it is 0: a row without support has nothing to divide."""
    return torch.where(total == 0, 1.0, total)
