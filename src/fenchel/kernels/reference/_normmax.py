"""Normmax in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel._dtypes import Parameter, widen
from fenchel._guarded import finite_max
from fenchel.kernels._table import row_map
from fenchel.kernels.reference._entmax import argmax
from fenchel.kernels.reference._newton import climb, safe_divide


@row_map("normmax")
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
        inverse = 1.0 / (widen(alpha) - 1.0)
    work = widen(x)
    u = work - finite_max(work, dim)
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
        return safe_divide(total * -torch.expm1(-q_inverse * total.log()), w.sum(dim, keepdim=True))

    tau, rest = climb(step, u, dim, base - 1.0)
    _, w = weights((u - tau) - rest)
    total = w.sum(dim, keepdim=True)
    p = w / torch.where(total == 0, 1.0, total)
    if isinstance(alpha, Tensor):
        p = torch.where(alpha == 1, argmax(work, dim), p)
        p = torch.where(alpha >= 1, p, torch.nan)
    return p.to(x.dtype)
