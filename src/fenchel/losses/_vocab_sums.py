r"""The threshold of a row with many candidates, from sums alone: 16 bytes a rank and round.

With :math:`a = \alpha - 1` the probabilities are :math:`p_j = [1 + a (x_j - c)]_+^{1/a}`, or
:math:`e^{x_j - c}` at :math:`a = 0`, for the one c at which :math:`F(c) = \sum_j p_j = 1`. As
:math:`F^a` is a norm of a convex function for :math:`\alpha \le 2` (and concave and increasing for
:math:`\alpha < 1`), Newton's steps on :math:`F^a = 1` from the left of c stay there and never turn
back; at :math:`\alpha = 1` one step is exact. The loss is then :math:`(\sum_j p_j^\alpha -
1)/\alpha - (x_y - c)`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fenchel._special import expm1_over
from fenchel.losses._vocab_wire import Wire
from fenchel.regularizers.tsallis_curve import slope as tsallis_slope

Parameter = float | Tensor

BLOCK = 8  # rows at a time, so that what is made of them stays in the cache
ROUNDS = 100  # five to eight are usual


def solve(
    wire: Wire, x: Tensor, own: Tensor, alpha: Parameter, centre: Tensor, with_slope: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, slopes in alpha (0 unless wanted) and c of rows; ``centre`` is at most c.

    ``x`` has the columns of this rank, ``own`` is the target's column there or -1.
    """
    a = _column(alpha, centre) - 1
    # A step leaves an error of its square, and no step is smaller than the rounding of the sums.
    enough = 1e-9 if _precise(x, alpha) == torch.float64 else 1e-6
    start, tail = centre, (-a).clamp(min=0)
    for _ in range(ROUNDS):
        mass = wire.sums(torch.cat([_mass(*block) for block in _blocks(x, alpha, centre)]))
        logs = mass[:, 0].log()
        # (F^a - 1) / a, over F^(a - 1) times minus the derivative of F
        step = logs * expm1_over(a * logs) * ((1 - a) * logs).exp() / mass[:, 1]
        centre = centre + step
        if not isinstance(alpha, Tensor) and alpha == 1:
            break
        # Below 1, p moves with the logarithm of 1 + |a| (c - x).
        tolerance = enough * (1 + tail * (centre - start)) + 1e-15 * centre.abs()
        if not bool((step.abs() > tolerance).any()):
            break
    blocks = zip(_blocks(x, alpha, centre), own.split(BLOCK), strict=True)
    last = wire.sums(torch.cat([_last(*block, gold, with_slope) for block, gold in blocks]))
    losses = (last[:, 0] - 1) / (a + 1) - last[:, 1]
    return losses.clamp(min=0).to(x.dtype), -last[:, 2], centre


def probabilities(x: Tensor, alpha: Parameter, centre: Tensor) -> Tensor:
    """p of the columns of this rank, in the dtype of ``x``."""
    return torch.cat([_p(z, of).to(x.dtype) for z, of in _blocks(x, alpha, centre)])


def _blocks(x: Tensor, alpha: Parameter, centre: Tensor) -> Iterator[tuple[Tensor, Parameter]]:
    """x - c, new memory, with its alpha."""
    dtype = _precise(x, alpha)
    for first in range(0, x.shape[0], BLOCK):
        rows = slice(first, first + BLOCK)
        of_block = alpha[rows] if isinstance(alpha, Tensor) else alpha
        c = centre[rows, None]
        near = c.to(dtype)  # x - near has no rounding where it matters
        yield (x[rows].to(dtype) - near).sub_((c - near).to(dtype)), of_block


def _precise(x: Tensor, alpha: Parameter) -> torch.dtype:
    """In float32 a power of 1/(alpha - 1) would multiply the rounding of its base."""
    simple = not isinstance(alpha, Tensor) and alpha in (1.0, 1.5, 2.0)
    return x.dtype if simple else torch.float64


def _p(z: Tensor, alpha: Parameter) -> Tensor:
    """Written over z, or not."""
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return z.exp_()
        if alpha == 1.5:
            return _root(z).square_()
        if alpha == 2:
            return z.add_(1).clamp_(min=0)
        return z.mul_(alpha - 1).clamp_(min=-1).log1p_().div_(alpha - 1).exp_()
    a = torch.where(alpha == 1, 1.0, alpha - 1)
    curved = (a * z).clamp_(min=-1).log1p_().div_(a).exp_()
    return torch.where(alpha == 1, z.exp(), curved)


def _root(z: Tensor) -> Tensor:
    return z.mul_(0.5).add_(1).clamp_(min=0)


def _mass(z: Tensor, alpha: Parameter) -> Tensor:
    """(rows, 2): the sum of p, and minus its derivative in c, which is the sum of p^(1 - a)."""
    if not isinstance(alpha, Tensor) and alpha == 1.5:
        root = _root(z)
        total, slopes = torch.linalg.vector_norm(root, dim=1).square(), root.sum(1)
    else:
        p = _p(z, alpha)
        total = p.sum(1)
        if isinstance(alpha, Tensor) or alpha not in (1.0, 2.0):
            slopes = p.pow(2 - alpha).masked_fill_(p == 0, 0.0).sum(1)
        else:
            slopes = total if alpha == 1 else p.sign().sum(1)
    return torch.stack([total, slopes], 1).double()


def _last(z: Tensor, alpha: Parameter, own: Tensor, with_slope: bool) -> Tensor:
    """(rows, 3): sum of p^alpha; x - c of the target where it is here; the slope of the entropy."""
    gold = z.new_zeros(len(own))
    if z.shape[1] > 0:
        gold = torch.where(own >= 0, z.gather(1, own.clamp(min=0)[:, None])[:, 0], gold)
    p = _p(z, alpha)
    slopes = tsallis_slope(p.double(), alpha)[:, 0] if with_slope else torch.zeros_like(gold)
    powers = p.sum(1) if not isinstance(alpha, Tensor) and alpha == 1 else p.pow(alpha).sum(1)
    return torch.stack([powers.double(), gold.double(), slopes.double()], 1)


def _column(alpha: Parameter, like: Tensor) -> Tensor:
    if isinstance(alpha, Tensor):
        return alpha[:, 0].to(like)
    return torch.full_like(like, alpha)
