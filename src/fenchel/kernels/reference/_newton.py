"""What the reference kernels share: one-sided Newton.

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

from fenchel._dtypes import Parameter


def climb(
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


def safe_divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """0 where the denominator is 0: a fully masked row has no slope and needs no step."""
    return torch.where(denominator == 0, 0.0, numerator / denominator)
