"""Maxima and sums of scores that may be -inf, without a NaN in any derivative."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def finite(top: Tensor) -> Tensor:
    """A maximum that can be subtracted: 0 where it is -inf."""
    return torch.where(top == -math.inf, 0.0, top)


def finite_top(x: Tensor, dim: int = -1) -> Tensor:
    """The maximum along ``dim``, of size 1 there; 0 where all is masked: -inf - -inf is NaN."""
    return finite(x.amax(dim, keepdim=True))


def finite_max(x: Tensor, dim: int) -> Tensor:
    """As :func:`finite_top`, but NaN, which spreads, for a row with +inf."""
    top = finite_top(x, dim)
    return torch.where(top == math.inf, torch.nan, top)


def below_top(x: Tensor, dim: int = -1) -> Tensor:
    """``x`` minus its maximum along ``dim``, which is a constant to autograd.

    No map and no derivative changes by it. A quotient of large scores is rounded at their size; one
    of their differences is not.
    """
    return x - finite_top(x.detach(), dim)


def log_sum_exp(x: Tensor, dim: int = -1) -> Tensor:
    """log sum exp along ``dim``, with derivatives of every order; -inf where all entries are."""
    top = finite_top(x.detach(), dim)
    total = torch.exp(x - top).sum(dim)
    alive = total > 0
    return torch.where(
        alive, top.squeeze(dim) + torch.log(torch.where(alive, total, 1.0)), -math.inf
    )
