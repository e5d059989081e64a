"""Renyimax in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import Parameter, widen
from fenchel._guarded import finite_max
from fenchel.kernels._table import row_map
from fenchel.kernels.reference._entmax import softmax


@row_map("renyimax")
def renyimax(x: Tensor, beta: Parameter, dim: int) -> Tensor:
    r"""argmax over the simplex of <x, p> + log(sum(p^beta)) / (1 - beta), beta a number in (0, 1].

    With c = beta / (1 - beta), the answer is p proportional to (lambda - x)^-(c + 1) for the
    lambda that gives sum(p (lambda - x)) = c. In d = max - x and lambda = max + c s that is
    p ~ w = (1 + d / (c s))^-(c + 1) and s = 1 - mean(d) / c, the mean being that under p: one
    equation for s in (0, 1], increasing with slope at least 1, which tends to softmax as c grows.
    """
    beta = float(beta)
    if beta == 1:
        return softmax(x, dim)
    c = beta / (1.0 - beta)
    work = widen(x)
    top = finite_max(work, dim)
    depth = torch.where(work == -math.inf, math.inf, top - work)
    finite = torch.where(depth == math.inf, 0.0, depth)

    def weights(s: Tensor) -> Tensor:
        return (-(c + 1.0) * (depth / (c * s)).log1p()).exp()

    s = torch.ones_like(top)
    low, high = torch.zeros_like(s), torch.ones_like(s)
    moving = s == s
    tolerance = math.sqrt(torch.finfo(s.dtype).eps) / 100  # what remains is about its square
    for _ in range(100):
        w = weights(s)
        total = w.sum(dim, keepdim=True)
        total = torch.where(total == 0, 1.0, total)
        growth = (c + 1.0) * finite / (s * (c * s + finite))  # d log(w) / ds
        mean = (w * finite).sum(dim, keepdim=True) / total
        spread = (w * finite * growth).sum(dim, keepdim=True) / total
        spread = spread - mean * ((w * growth).sum(dim, keepdim=True) / total)
        excess = (s - 1.0) + mean / c
        low, high = torch.where(excess > 0, low, s), torch.where(excess > 0, s, high)
        newton = s - excess / (1.0 + spread.clamp(min=0) / c)
        near = ~((newton - s).abs() > tolerance * s)  # NaN too
        inside = near | ((newton > low) & (newton < high))
        following = torch.where(inside, newton, low + (high - low) / 2)
        # A row that is done stands still: its result must not depend on its neighbours.
        s = torch.where(moving, following, s)
        moving = moving & ~near
        if not torch.compiler.is_compiling() and not bool(moving.any()):
            break
    w = weights(s)
    total = w.sum(dim, keepdim=True)
    return (w / torch.where(total == 0, 1.0, total)).to(x.dtype)
