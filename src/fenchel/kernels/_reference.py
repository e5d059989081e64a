"""Simplex maps in plain torch: any device, any layout, no sort. The definition of correct.

Every function takes floating ``x`` (float32 or float64), a parameter (a Python float, or a tensor
that broadcasts against ``x`` with size 1 along ``dim``) and ``dim``. ``-inf`` is a mask, a fully
masked row is all zeros, and a row with NaN or +inf is all NaN.

The roots are found by Newton steps that approach from one side (the functions are convex), so
no bracket is needed. For such steps residual times slope falls at least fourfold each time,
which bounds their number by log2(n) + log4(1/eps). An eager call stops as soon as all rows are
done; a compiled one takes that many steps, unrolled into one fused kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Parameter = float | Tensor


def entmax(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    r"""argmax over the simplex of <x, p> + H_alpha(p), with Tsallis entropy; alpha in [1, inf]."""
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return softmax(x, dim)
        if alpha - 1 > torch.finfo(torch.float64).max / 4:
            return argmax(x, dim)
        return _entmax_flat(x, alpha, dim) if alpha <= 2 else _entmax_steep(x, alpha, dim)
    wide = _widen(alpha)
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
    weights = (x - _finite_max(x, dim)).exp()
    # One large entry among many small ones: float32 would round the small away, one by one.
    total = _widen(weights).sum(dim, keepdim=True).to(x.dtype)
    return weights / torch.where(total == 0, 1.0, total)


def argmax(x: Tensor, dim: int) -> Tensor:
    """Entmax at alpha = inf: all mass on the maximum, shared equally between ties."""
    top = x.amax(dim, keepdim=True)
    best = (x == top) & (top > -math.inf)
    p = best.to(x.dtype) / best.sum(dim, keepdim=True).clamp(min=1)
    return torch.where(top < math.inf, p, torch.nan)


def normmax(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    r"""argmax over the simplex of <x, p> - ||p||_alpha, alpha in [1, inf].

    With a = alpha - 1 and z = [x - tau]_+, the answer is p proportional to w = z^(1/a), for the
    tau that gives sum(w z) = 1. The q-norm of z, q = 1 + 1/a, is convex in tau for every alpha.
    """
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return argmax(x, dim)
        inverse: Parameter = 1.0 / (alpha - 1.0)
    else:
        # alpha = 1 and alpha = inf need no case of their own below: 1/a is inf and 0 there, and
        # z^(1/a) tends to the indicator of the maximum and of the support.
        inverse = 1.0 / (_widen(alpha) - 1.0)
    work = _widen(x)
    u = work - _finite_max(work, dim)
    q_inverse = 1.0 / (1.0 + inverse)  # 1/q
    # z = base + (u - tau), with the base as in _entmax_flat: 1 for alpha near 1, else 0.
    small = inverse > 2.0
    base = small.to(work.dtype) if isinstance(small, Tensor) else float(small)

    def weights(w: Tensor) -> tuple[Tensor, Tensor]:
        """z and z^(1/a), at w = u - tau."""
        z = (base + w).clamp(min=0)
        if isinstance(base, Tensor):
            logs = torch.where(base == 1, w.clamp(min=-1).log1p(), z.log())
        else:
            logs = w.clamp(min=-1).log1p() if base else z.log()
        return z, torch.where(z <= 0, 0.0, (inverse * logs).exp())

    def step(tau: Tensor) -> Tensor:
        z, w = weights(u - tau)
        total = (w * z).sum(dim, keepdim=True)
        return _safe_divide(
            total * -torch.expm1(-q_inverse * total.log()), w.sum(dim, keepdim=True)
        )

    tau, rest = _climb(step, u, dim, base - 1.0)
    _, w = weights((u - tau) - rest)
    total = w.sum(dim, keepdim=True)
    p = w / torch.where(total == 0, 1.0, total)
    if isinstance(alpha, Tensor):
        p = torch.where(alpha == 1, argmax(work, dim), p)
        p = torch.where(alpha >= 1, p, torch.nan)
    return p.to(x.dtype)


def budget(x: Tensor, k: Parameter, dim: int) -> Tensor:
    """Projection of x onto {p : 0 <= p <= 1, sum(p) = k}: p = clip(x - tau, 0, 1).

    A row with fewer than k unmasked entries gives each of them 1.
    """
    work = _widen(x)
    # Not shifted by the maximum: scores near the threshold, which may be far below, would round.
    kept = work > -math.inf
    high = _finite_max(work, dim)
    low = torch.where(kept, work, high).amin(dim, keepdim=True) - 1.0
    goal = _widen(k).to(work.device) if isinstance(k, Tensor) else k
    full = kept.sum(dim, keepdim=True) <= goal

    def evaluate(tau: Tensor) -> tuple[Tensor, Tensor]:
        shifted = work - tau
        excess = shifted.clamp(0, 1).sum(dim, keepdim=True) - goal
        active = ((shifted > 0) & (shifted < 1)).sum(dim, keepdim=True)
        return excess, active

    # The sum is piecewise linear in tau but not convex: Newton inside a bracket, and every other
    # step the bracket's middle, which alone would pin tau to the last bit.
    tau = (low + high) / 2
    rest = torch.zeros_like(tau)
    for step in range(2 * _mantissa_bits(work.dtype)):
        excess, active = evaluate(tau)
        low = torch.where(excess >= 0, tau, low)
        high = torch.where(excess <= 0, tau, high)
        rest = excess / active.clamp(min=1)
        newton = tau + rest
        inside = (active > 0) & (newton >= low) & (newton <= high)
        grain = 4 * torch.finfo(work.dtype).eps * (1 + tau.abs())
        moving = ((active == 0) | (rest.abs() > grain)) & (low < high) & ~full
        if not torch.compiler.is_compiling() and not bool(moving.any()):
            break
        middle = (low + high) / 2
        following = torch.where(inside, newton, middle) if step % 2 == 0 else middle
        # A row that is done stands still: its result must not depend on its neighbours.
        tau = torch.where(moving, following, tau)
    else:
        excess, active = evaluate(tau)
        rest = excess / active.clamp(min=1)
    rest = torch.where(rest.abs() < 1, rest, 0.0)
    p = ((work - tau) - rest).clamp(0, 1)
    p = torch.where(full, kept.to(work.dtype), p)
    valid = x.amax(dim, keepdim=True) < math.inf
    if isinstance(goal, Tensor):
        valid = valid & (goal >= 0)
    return torch.where(valid, p, torch.nan).to(x.dtype)


def _entmax_flat(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    """Entmax for 1 <= alpha <= 2: p = [base + a(u - tau)]_+^(1/a), a = alpha - 1, u = x - max.

    The base is 0, which keeps small p exact (u - tau is then a difference of neighbours), or 1
    for small a, where tau tends to log-sum-exp and nothing blows up. The sum to the power a is a
    norm of a vector that is affine in tau, so it is convex, and nearly linear: Newton steps on it
    from the tau of a one-hot row climb to the root from the left, a handful of them.
    """
    u = x - _finite_max(x, dim)
    if isinstance(alpha, Tensor):
        # The floor keeps log1p(a w) / a finite at alpha = 1, where it is w to the last digit.
        a: Parameter = torch.where(alpha >= 1, (alpha - 1.0).clamp(min=1e-30), torch.nan)
        a = a.to(x.dtype)
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
        return _safe_divide(gain, slope.sum(dim, keepdim=True))

    if isinstance(small, Tensor):
        start: Parameter = torch.where(small, 0.0, -1.0 / a)
    else:
        start = 0.0 if small else -1.0 / a
    tau, rest = _climb(step, u, dim, start)
    return probabilities((u - tau) - rest)[0]


def _entmax_steep(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    """Entmax for alpha > 2, where p near the threshold is infinitely steep in it.

    An entry is in the support exactly if those above it do not fill the simplex alone, so the
    support is found first, by bisection over the bits of the threshold. Then the unknown is
    y = p of the smallest supported entry: p_i = (y^a + a (x_i - x_min))^(1/a) is a norm, convex
    in y, and Newton steps descend from y = 1/|support|.
    """
    work = _widen(x)
    depth = _finite_max(work, dim) - work  # >= 0, +inf where masked
    a = _widen(alpha) - 1.0 if isinstance(alpha, Tensor) else alpha - 1.0
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
        return _safe_divide(total - 1.0, slope.sum(dim, keepdim=True))

    drop, rest = _climb(step, depth, dim)
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


def _climb(
    step: Callable[[Tensor], Tensor], like: Tensor, dim: int, start: Parameter = 0.0
) -> tuple[Tensor, Tensor]:
    """Newton with steps that never overshoot: (position, last step not yet taken).

    The last step is returned apart: added to the position it would be rounded away, while
    subtracted after the position it still counts.
    """
    eps = torch.finfo(like.dtype).eps
    tau = torch.zeros_like(like.amin(dim, keepdim=True)) + start
    limit = math.ceil(math.log2(like.shape[dim] + 1)) + math.ceil(-math.log(eps, 4)) + 1
    rest = step(tau)
    for _ in range(limit):
        moving = rest.abs() > 4 * eps
        if not torch.compiler.is_compiling() and not bool(moving.any()):
            break
        # A row that is done stands still: its result must not depend on its neighbours.
        tau = torch.where(moving, tau + rest, tau)
        rest = step(tau)
    return tau, rest


def _finite_max(x: Tensor, dim: int) -> Tensor:
    """The row's maximum; 0 for a fully masked row, and NaN, which spreads, for one with +inf."""
    top = x.amax(dim, keepdim=True)
    return torch.where(top == -math.inf, 0.0, torch.where(top == math.inf, torch.nan, top))


def _safe_divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """0 where the denominator is 0: a fully masked row has no slope and needs no step."""
    return torch.where(denominator == 0, 0.0, numerator / denominator)


def _widen(x: Tensor) -> Tensor:
    """float64, except on devices that have none."""
    return x.float() if x.device.type == "mps" else x.double()


def _mantissa_bits(dtype: torch.dtype) -> int:
    return 53 if dtype == torch.float64 else 24
