"""Entmax in plain torch, by the size of alpha, and the list of its nonzeros."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter, widen
from fenchel._guarded import finite_max
from fenchel.kernels._table import REFERENCE, implements, row_map
from fenchel.kernels.reference._newton import climb, safe_divide


@row_map("entmax")
def entmax(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    r"""argmax over the simplex of <x, p> + H_alpha(p), with Tsallis entropy; alpha in (0, inf]."""
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return softmax(x, dim)
        if alpha - 1 > torch.finfo(torch.float64).max / 4:
            return argmax(x, dim)
        return _entmax_flat(x, alpha, dim) if alpha <= 2 else _entmax_steep(x, alpha, dim)
    wide = widen(alpha)
    steep = wide > 2
    flat_p = _entmax_flat(x, wide.clamp(max=2.0), dim)
    if not torch.compiler.is_compiling() and not bool(steep.any()):
        return flat_p
    limit = torch.finfo(wide.dtype).max / 4
    steep_p = _entmax_steep(x, wide.clamp(min=2.0, max=limit), dim)
    p = torch.where(steep, steep_p, flat_p)
    return torch.where(wide > limit, argmax(x, dim), p)


def softmax(x: Tensor, dim: int) -> Tensor:
    """Entmax at alpha = 1, with zeros instead of NaN in a fully masked row."""
    weights = (x - finite_max(x, dim)).exp()
    # One large entry among many small ones: float32 would round the small away, one by one.
    total = widen(weights).sum(dim, keepdim=True).to(x.dtype)
    return weights / torch.where(total == 0, 1.0, total)


def argmax(x: Tensor, dim: int) -> Tensor:
    """Entmax at alpha = inf: all mass on the maximum, shared equally between ties."""
    top = x.amax(dim, keepdim=True)
    best = (x == top) & (top > -math.inf)
    p = best.to(x.dtype) / best.sum(dim, keepdim=True).clamp(min=1)
    return torch.where(top < math.inf, p, torch.nan)


def _entmax_flat(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    """Entmax for 0 < alpha <= 2: p = [base + a(u - tau)]_+^(1/a), a = alpha - 1, u = x - max.

    The base is 0, which keeps small p exact (u - tau is then a difference of neighbours), or 1
    for small a, where tau tends to log-sum-exp and nothing blows up. The sum to the power a is a
    norm of a vector that is affine in tau, so it is convex, and nearly linear: Newton steps on it
    from the tau of a one-hot row climb to the root from the left, a handful of them. Below 1 the
    base is 1, p = (1 + |a|(tau - u))^(-1/|a|) is positive everywhere, and the sum to the power a is
    concave and grows with tau: the steps climb as well.
    """
    u = x - finite_max(x, dim)
    if isinstance(alpha, Tensor):
        # Not 0, so that log1p(a w) / a is finite at alpha = 1, where it is w to the last digit.
        excess = torch.where(alpha == 1, 1e-30, torch.where(alpha > 0, alpha - 1.0, torch.nan))
        a: Parameter = excess.to(x.dtype)
        small: bool | Tensor = a < 0.5
    else:
        a = alpha - 1.0
        small = a < 0.5

    def probabilities(w: Tensor) -> tuple[Tensor, Tensor]:
        """p and its slope p^(2 - alpha), at w = u - tau."""
        if not isinstance(a, Tensor) and a == 1.0:
            p = w.clamp(min=0)
            return p, (p > 0).to(p.dtype)
        if not isinstance(a, Tensor) and a == 0.5:
            root = (0.5 * w).clamp(min=0)
            return root * root, root
        scaled = a * w
        if isinstance(small, Tensor):
            low = torch.where(small, -1.0, 0.0)
            scaled = torch.where(scaled <= low, low, scaled)  # NaN stays
            logs = torch.where(small, scaled.clamp(min=-1).log1p(), scaled.clamp(min=0).log())
            z = scaled - low
        elif small:
            scaled = scaled.clamp(min=-1)
            logs, z = scaled.log1p(), 1.0 + scaled
        else:
            z = scaled.clamp(min=0)
            logs = z.log()
        p = (logs / a).exp()
        return p, torch.where(p > 0, p / z, 0.0)

    def step(tau: Tensor) -> Tensor:
        p, slope = probabilities(u - tau)
        total = p.sum(dim, keepdim=True)
        gain = total * (-torch.expm1(-a * total.log()) / a)
        return safe_divide(gain, slope.sum(dim, keepdim=True))

    if isinstance(small, Tensor):
        start: Parameter = torch.where(small, 0.0, -1.0 / a)
    else:
        start = 0.0 if small else -1.0 / a
    tau, rest = climb(step, u, dim, start)
    return probabilities((u - tau) - rest)[0]


def _entmax_steep(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    """Entmax for alpha > 2, where p near the threshold is infinitely steep in it.

    An entry is in the support exactly if those above it do not fill the simplex alone, so the
    support is found first, by bisection over the bits of the threshold. Then the unknown is
    y = p of the smallest supported entry: p_i = (y^a + a (x_i - x_min))^(1/a) is a norm, convex
    in y, and Newton steps descend from y = 1/|support|.
    """
    work = widen(x)
    depth = finite_max(work, dim) - work  # >= 0, +inf where masked
    a = widen(alpha) - 1.0 if isinstance(alpha, Tensor) else alpha - 1.0
    inside = (depth <= _deepest_support(depth, a, dim)) & (depth < math.inf)
    lowest = torch.where(inside, work, math.inf).amin(dim, keepdim=True)
    # From the scores, not from depths: their differences are exact where it matters.
    log_rise = torch.where(inside, a * (work - lowest), 0.0).log()  # -inf for the lowest
    size = inside.sum(dim, keepdim=True).clamp(min=1)

    def log_p(y: Tensor) -> Tensor:
        return torch.logaddexp(a * y.log(), log_rise) / a

    def step(drop: Tensor) -> Tensor:
        y = (1.0 / size - drop).clamp(min=torch.finfo(work.dtype).tiny)
        logs = log_p(y)
        total = torch.where(inside, logs.exp(), 0.0).sum(dim, keepdim=True)
        slope = torch.where(inside, ((a - 1.0) * (y.log() - logs)).exp(), 0.0)
        return safe_divide(total - 1.0, slope.sum(dim, keepdim=True))

    drop, rest = climb(step, depth, dim)
    y = ((1.0 / size - drop) - rest).clamp(min=torch.finfo(work.dtype).tiny)
    p = torch.where(inside, log_p(y).exp(), 0.0)
    top = x.amax(dim, keepdim=True)
    return torch.where(top < math.inf, p, torch.nan).to(x.dtype)


def _deepest_support(depth: Tensor, a: Parameter, dim: int) -> Tensor:
    """The largest s for which sum([a (s - depth)]_+^(1/a)) < 1, by bisection over float bits.

    Positive floats are ordered as their bit patterns are, so this is exact, and as fine for
    depths of 1e-30 as for depths of 1: for a large alpha both matter.
    """
    bits_type = torch.int64 if depth.dtype == torch.float64 else torch.int32
    shape = depth.amin(dim, keepdim=True)
    high = (torch.zeros_like(shape) + 1.0 / a).view(bits_type)
    low = torch.zeros_like(high)
    for _ in range(63 if depth.dtype == torch.float64 else 31):
        middle = low + (high - low) // 2
        rise = (a * (middle.view(depth.dtype) - depth)).clamp(min=0)
        filled = (rise.log() / a).exp().sum(dim, keepdim=True) >= 1.0
        high = torch.where(filled, middle, high)
        low = torch.where(filled, low, middle)
    return low.view(depth.dtype)


@implements("entmax.sparse", REFERENCE)
def sparse_entmax(x: Tensor, alpha: Parameter) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Support of entmax along the last axis: (indices, values, sizes, threshold), row by row."""
    p = entmax(x, alpha, -1)
    inside = p != 0
    return inside.nonzero()[:, -1].clone(), p[inside], inside.sum(-1), _threshold(x, p, alpha)


def _threshold(x: Tensor, p: Tensor, alpha: Parameter) -> Tensor:
    """The score above which an entry is in the support, from the largest one: it is the safest."""
    best, peak = widen(x.amax(-1)), widen(p.amax(-1))
    if not isinstance(alpha, Tensor):
        if alpha <= 1:  # no score is too low
            return torch.full_like(best, -math.inf)
        if alpha == math.inf:
            return best
        return best - ((alpha - 1) * peak.log()).exp() / (alpha - 1)
    a = alpha.squeeze(-1).to(best) - 1
    below = torch.where(a == math.inf, 0.0, (a * peak.log()).exp() / a)
    return torch.where((a > -1) & (a <= 0), -math.inf, best - below)
