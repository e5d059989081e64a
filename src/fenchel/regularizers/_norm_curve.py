r"""The q-norm of a distribution, in logarithms: 1 at a vertex, small nowhere, for q up to ∞."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Parameter = float | Tensor


def log_norm(p: Tensor, q: Parameter) -> Tensor:
    """log ||p||_q along the last axis, kept; -inf for a row of zeros."""
    peak = p.abs().amax(-1, keepdim=True)
    if not isinstance(q, Tensor) and q == math.inf:
        return peak.log()
    safe = torch.where(peak == 0, 1.0, peak)
    # Relative to the largest entry the sum lies in [1, n], and the logarithm keeps its digits.
    return (p / safe).pow(q).sum(-1, keepdim=True).log() / q + peak.log()


def log_norm_slope(p: Tensor, q: Parameter) -> Tensor:
    """The derivative of log ||p||_q in q at fixed p, along the last axis, kept."""
    logs = torch.where(p == 0, 1.0, p).log()
    weights = torch.where(p == 0, 0.0, (q * (logs - log_norm(p, q))).exp())
    return ((weights * logs).sum(-1, keepdim=True) - log_norm(p, q)) / q


def norm_gradient(p: Tensor, q: Parameter) -> Tensor:
    """The gradient of ||p||_q; at q = ∞ the subgradient that ties share."""
    if not isinstance(q, Tensor) and q == math.inf:
        best = (p == p.amax(-1, keepdim=True)).to(p.dtype)
        return best / best.sum(-1, keepdim=True)
    return (p / log_norm(p, q).exp()).pow(q - 1)  # 0^0 = 1, which is right at q = 1
