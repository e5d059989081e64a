"""Arithmetic on scores that may be -inf, without a NaN in any derivative."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def finite(top: Tensor) -> Tensor:
    """A maximum that can be subtracted: 0 where it is -inf."""
    return torch.where(top == -math.inf, 0.0, top)


def log_sum_exp(x: Tensor) -> Tensor:
    """log sum exp over the last axis; -inf where all are."""
    top = finite(x.detach().amax(-1))
    total = torch.exp(x - top.unsqueeze(-1)).sum(-1)
    alive = total > 0
    return torch.where(alive, top + torch.log(torch.where(alive, total, 1.0)), -math.inf)
