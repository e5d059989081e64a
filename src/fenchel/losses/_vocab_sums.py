r"""The threshold of a row with many candidates, from sums alone: 16 bytes a rank and round.

With :math:`a = \alpha - 1` the probabilities are :math:`p_j = [1 + a (x_j - c)]_+^{1/a}`, or
:math:`e^{x_j - c}` at :math:`a = 0`, for the one c at which :math:`F(c) = \sum_j p_j = 1`. As
:math:`F^a` is a norm of a convex function for :math:`\alpha \le 2`, Newton's steps on :math:`F^a =
1` from the left of c stay there and never turn back; at :math:`\alpha = 1` one step is exact. The
loss is then :math:`(\sum_j p_j^\alpha - 1)/\alpha - (x_y - c)`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fenchel._special import expm1_over
from fenchel.losses._vocab_wire import Wire
from fenchel.regularizers._tsallis_curve import slope as tsallis_slope

Parameter = float | Tensor

BLOCK = 64  # rows that are widened to float64 at a time
ROUNDS = 100  # five to eight are usual


def solve(
    wire: Wire, x: Tensor, own: Tensor, alpha: Parameter, centre: Tensor, with_slope: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, slopes in alpha (0 unless wanted) and c of rows; ``centre`` is at most c.

    ``x`` has the columns of this rank, ``own`` is the target's column there or -1.
    """
    a = _column(alpha, centre) - 1
    for _ in range(ROUNDS):
        mass = wire.sums(torch.cat([_mass(*block) for block in _blocks(x, alpha, centre)]))
        logs = mass[:, 0].log()
        # (F^a - 1) / a, over F^(a - 1) times minus the derivative of F
        step = logs * expm1_over(a * logs) * ((1 - a) * logs).exp() / mass[:, 1]
        centre = centre + step
        if not bool((step.abs() > 1e-9 + 1e-15 * centre.abs()).any()):
            break
    blocks = zip(_blocks(x, alpha, centre), own.split(BLOCK), strict=True)
    last = wire.sums(torch.cat([_last(*block, gold, with_slope) for block, gold in blocks]))
    losses = (last[:, 0] - 1) / (a + 1) - last[:, 1]
    return losses.clamp(min=0).to(x.dtype), -last[:, 2], centre


def probabilities(x: Tensor, alpha: Parameter, centre: Tensor) -> Tensor:
    """p of the columns of this rank, in the dtype of ``x``."""
    return torch.cat([_p(z, of).to(x.dtype) for z, of in _blocks(x, alpha, centre)])


def _blocks(
    x: Tensor, alpha: Parameter, centre: Tensor
) -> Iterator[tuple[Tensor, Parameter]]:
    """x - c in float64 with its alpha."""
    for first in range(0, x.shape[0], BLOCK):
        rows = slice(first, first + BLOCK)
        of_block = alpha[rows] if isinstance(alpha, Tensor) else alpha
        yield x[rows].double() - centre[rows, None], of_block


def _p(z: Tensor, alpha: Parameter) -> Tensor:
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return z.exp()
        if alpha == 1.5:
            return (1 + z / 2).clamp(min=0).square()
        if alpha == 2:
            return (1 + z).clamp(min=0)
        return ((alpha - 1) * z).clamp(min=-1).log1p().div(alpha - 1).exp()
    a = torch.where(alpha == 1, 1.0, alpha - 1)
    curved = (a * z).clamp(min=-1).log1p().div(a).exp()
    return torch.where(alpha == 1, z.exp(), curved)


def _mass(z: Tensor, alpha: Parameter) -> Tensor:
    """(rows, 2): the sum of p, and minus its derivative in c, which is the sum of p^(1 - a)."""
    p = _p(z, alpha)
    if isinstance(alpha, Tensor) or alpha not in (1.0, 1.5, 2.0):
        slopes = p.pow(2 - alpha).masked_fill(p == 0, 0.0)
    else:
        slopes = {1.0: p, 1.5: p.sqrt(), 2.0: (p > 0).to(p.dtype)}[alpha]
    return torch.stack([p.sum(1), slopes.sum(1)], 1)


def _last(z: Tensor, alpha: Parameter, own: Tensor, with_slope: bool) -> Tensor:
    """(rows, 3): sum of p^alpha; x - c of the target where it is here; the slope of the entropy."""
    p = _p(z, alpha)
    powers = p.pow(alpha).sum(1)
    here = own >= 0
    gold = torch.zeros_like(powers)
    if z.shape[1] > 0:
        gold = torch.where(here, z.gather(1, own.clamp(min=0)[:, None])[:, 0], 0.0)
    slopes = tsallis_slope(p, alpha)[:, 0] if with_slope else torch.zeros_like(powers)
    return torch.stack([powers, gold, slopes], 1)


def _column(alpha: Parameter, like: Tensor) -> Tensor:
    if isinstance(alpha, Tensor):
        return alpha[:, 0].to(like)
    return torch.full_like(like, alpha)
