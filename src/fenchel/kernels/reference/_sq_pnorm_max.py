"""Sq_pnorm_max in plain torch, by the size of q."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter, widen
from fenchel._guarded import finite_max
from fenchel.kernels._table import row_map
from fenchel.kernels.reference._entmax import argmax

_LARGEST_Q = 1e18  # beyond, z^(1/(q - 1)) is 1 to the last digit for every z that is not 0


@row_map("sq_pnorm_max")
def sq_pnorm_max(x: Tensor, q: Parameter, dim: int) -> Tensor:
    r"""argmax over the simplex of <x, p> - ||p||_q^2 / 2, q a number in [1, inf].

    With a = q - 1, r = q / a and z = [x - tau]_+, the answer is p = u ||z||_r^(2-r), u = z^(1/a),
    for the tau in [max - 1, max) that makes it sum to 1. The sum is minus the slope of
    ||z||_r^2 / 2 in tau, so it falls, but it is not convex: Newton's steps need a bracket. Once
    the sum is 1, p is u / sum(u).
    """
    q = float(q)
    if q == 1:
        return argmax(x, dim)
    work = widen(x).movedim(dim, -1)
    p = _flat(work, q) if q <= 2 else _steep(work, q)
    return torch.where(x.amax(dim, keepdim=True) < math.inf, p.movedim(-1, dim), torch.nan).to(
        x.dtype
    )


def _total(x: Tensor) -> Tensor:
    return x.sum(-1, keepdim=True)


def _flat(work: Tensor, q: float) -> Tensor:
    """1 < q <= 2, by h, how far the maximum lies above tau.

    In the ratios z/h, (r-1)-powers S1 and r-powers S2 of them, the sum is h S1 S2^((2-r)/r):
    nothing overflows, however near q is to 1.
    """
    inverse = 1.0 / (q - 1.0)
    r = 1.0 + inverse
    depth = finite_max(work, -1) - work

    def weights(z: Tensor, h: Tensor) -> Tensor:
        """(z / h)^(1/a); from the depth where a is small: there its last digit counts."""
        if inverse == 1:
            return z / h
        logs = (-depth / h).clamp(min=-1).log1p() if inverse > 2 else (z / h).log()
        return (inverse * logs).exp()

    h = torch.ones_like(work.amax(-1, keepdim=True))
    low, high, rest = torch.zeros_like(h), h, torch.zeros_like(h)
    tolerance = 64 * torch.finfo(h.dtype).eps
    for _ in range(120):
        z = (h - depth).clamp(min=0)
        w = torch.where(z > 0, weights(z, h), 0.0)
        s0 = _total(torch.where(z > 0, w * h / z, 0.0))
        s1, s2 = _total(w), _total(w * z / h)
        s2 = torch.where(s2 == 0, 1.0, s2)  # a fully masked row
        scale = (s2.log() * ((2.0 - r) / r)).exp()
        excess = h * s1 * scale - 1.0
        slope = scale * ((r - 1.0) * s0 - (r - 2.0) * s1 * s1 / s2)
        rest = -excess / slope
        low, high = torch.where(excess > 0, low, h), torch.where(excess > 0, h, high)
        newton, middle = h + rest, low + (high - low) / 2
        moving = (rest.abs() > tolerance * h) & (middle > low) & (middle < high)
        if not torch.compiler.is_compiling() and not bool(moving.any()):
            break
        following = torch.where((newton > low) & (newton < high), newton, middle)
        # A row that is done stands still: its result must not depend on its neighbours.
        h = torch.where(moving, following, h)
    # The last step stays apart: added to h it would be rounded away, after the depth it counts.
    rest = torch.where(rest.abs() < 1e-9 * h, rest, 0.0)
    z = ((h - depth) + rest).clamp(min=0)
    w = torch.where(z > 0, weights(z, h + rest), 0.0)
    total = _total(w)
    return w / torch.where(total == 0, 1.0, total)


def _steep(work: Tensor, q: float) -> Tensor:
    """q > 2, where p near tau is infinitely steep in it.

    First the support: a score is in it if those above it, with tau there, sum to less than 1.
    Then the unknown is the smallest z, y = t^a; the sum is increasing in t and, for q >= 3,
    convex. Newton's steps are taken in t but kept as log y: for a large q, t is a hair below 1.
    """
    a, inverse = q - 1.0, 1.0 / (q - 1.0)
    r, power = 1.0 + inverse, 1.0 - 2.0 / q
    finite = work > -math.inf
    lowest = _lowest_supported(work, inverse, power)
    inside = finite & (work >= lowest)
    rise = torch.where(inside, work - lowest, 0.0)
    size = _total(inside.to(work.dtype)).clamp(min=1)
    if q > _LARGEST_Q:
        return _infinite(rise, inside, size)
    log_rise = rise.log()  # -inf for the lowest

    def log_gaps(log_y: Tensor) -> Tensor:
        return torch.logaddexp(log_y, log_rise)

    def total(values: Tensor) -> Tensor:
        return _total(torch.where(inside, values, 0.0))

    log_y = -2.0 * a / q * size.log()  # where ties would have the sum 1, so others have more
    low, high = torch.full_like(log_y, -math.inf), torch.full_like(log_y, math.inf)
    moving = log_y == log_y
    tolerance = 64 * torch.finfo(work.dtype).eps
    for _ in range(120):
        log_z = log_gaps(log_y)
        u = (inverse * log_z).exp()
        sum_u, powers = total(u), total((r * log_z).exp())
        powers = torch.where(powers == 0, 1.0, powers)
        scale = (power * powers.log()).exp()
        excess = sum_u * scale - 1.0
        direct = total(u * (log_y - log_z).exp())
        slope = scale * (direct + (q - 2.0) * sum_u * sum_u * (log_y.exp() / powers))
        low, high = torch.where(excess > 0, low, log_y), torch.where(excess > 0, log_y, high)
        newton = log_y + a * torch.log1p(-excess / slope)
        middle = a * (((low * inverse).exp() + (high * inverse).exp()) / 2).log()
        near = excess.abs() <= tolerance
        following = torch.where(near | ((newton > low) & (newton < high)), newton, middle)
        stuck = ~near & ~((following > low) & (following < high))
        # A row that is done stands still: its result must not depend on its neighbours.
        usable = moving & ~stuck & following.isfinite()
        log_y = torch.where(usable, following, log_y)
        moving = moving & ~near & ~stuck
        if not torch.compiler.is_compiling() and not bool(moving.any()):
            break
    u = torch.where(inside, (inverse * log_gaps(log_y)).exp(), 0.0)
    sum_u = _total(u)
    return u / torch.where(sum_u == 0, 1.0, sum_u)


def _lowest_supported(work: Tensor, inverse: float, power: float) -> Tensor:
    """The smallest score in the support, by bisection over the ranks of the sorted row.

    Differences of scores are exact where it matters; depths below the maximum would not be.
    """
    ordered = work.sort(-1, descending=True).values
    low = torch.zeros_like(work[..., :1], dtype=torch.int64)  # the maximum is always supported
    high = (work > -math.inf).sum(-1, keepdim=True)  # the first rank known to be outside
    for _ in range(work.shape[-1].bit_length()):
        middle = (low + high) // 2
        z = (work - ordered.gather(-1, middle.clamp(max=work.shape[-1] - 1))).clamp(min=0)
        u = torch.where(z > 0, (inverse * z.log()).exp(), 0.0)
        mass = _total(u) * (power * _total(u * z).log()).exp()
        inside = (mass < 1) & (middle < high)
        low = torch.where(inside, middle, low)
        high = torch.where(inside, high, torch.maximum(middle, low + 1))
    return ordered.gather(-1, low)


def _infinite(rise: Tensor, inside: Tensor, size: Tensor) -> Tensor:
    """q = inf: all above the lowest supported score have the same mass; it and its ties the rest.

    No entry may exceed the largest, so mass fills up the best ones evenly; where the rest of it
    would be more than that for the last ones, all share.
    """
    above = _total((rise > 0).to(rise.dtype))
    mass = _total(rise)
    uniform = size * mass <= 1
    low = (1.0 - above * mass) / (size - above).clamp(min=1)
    p = torch.where(uniform, 1.0 / size, torch.where(rise > 0, mass, low))
    return torch.where(inside, p, 0.0)
