"""Functions that a user may write as Ω, and rows on which they are smooth."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import fenchel as fy

F64 = torch.float64
INF = math.inf
from_function = fy.Regularizer.from_function


def gini(p: Tensor) -> Tensor:
    return 0.5 * (p * p).sum(-1)


def shannon(p: Tensor) -> Tensor:
    return (p * p.clamp_min(1e-300).log()).sum(-1)


def tsallis15(p: Tensor) -> Tensor:
    return (p * p.sqrt() - p).sum(-1) / 0.75


def tsallis3(p: Tensor) -> Tensor:
    return (p**3 - p).sum(-1) / 6


def squared_norm(p: Tensor) -> Tensor:
    return 0.5 * torch.linalg.vector_norm(p, 1.5, dim=-1) ** 2


def norm(p: Tensor) -> Tensor:
    return torch.linalg.vector_norm(p, dim=-1)  # its Hessian is singular, but not on the simplex


def chain(p: Tensor) -> Tensor:
    return 0.5 * (p * p).sum(-1) + 0.4 * (p[..., 1:] * p[..., :-1]).sum(-1)


def soft_worst(p: Tensor) -> Tensor:
    n = p.shape[-1]
    mix = torch.cos(torch.arange(3.0 * n, dtype=F64)).reshape(n, 3)
    return (p @ mix).logsumexp(-1) + 0.1 * (p * p).sum(-1)


KNOWN = {
    "gini": (gini, fy.Gini()),
    "shannon": (shannon, fy.Shannon()),
    "tsallis15": (tsallis15, fy.Tsallis(1.5)),
    "tsallis3": (tsallis3, fy.Tsallis(3.0)),
    "norm": (norm, fy.Norm(2.0)),
}
EVERY = {name: f for name, (f, _) in KNOWN.items()} | {
    "squared_norm": squared_norm,
    "chain": chain,
    "soft_worst": soft_worst,
}
known = pytest.mark.parametrize(("f", "ours"), KNOWN.values(), ids=KNOWN)
every = pytest.mark.parametrize("f", EVERY.values(), ids=EVERY)


def randn(*shape: int, rng, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=rng, dtype=F64)


def distributions(*shape: int, rng) -> Tensor:
    return fy.entmax15(randn(*shape, rng=rng))


def smooth_rows(omega, rng, n: int = 5) -> Tensor:
    """Scores around which the support does not change, with two or more entries in it."""
    x = randn(100, 1, n, rng=rng, scale=0.5)
    near = torch.cat([x + 0.02 * torch.eye(n), x - 0.02 * torch.eye(n), x], 1)
    inside = omega.predict(near) > 0
    stable = (inside == inside[:, -1:]).all(-1).all(-1) & (inside[:, -1].sum(-1) >= 2)
    assert stable.sum() >= 3, "no smooth rows: change the scale"
    return x[stable, 0][:3].requires_grad_()


def check_derivatives(function, *inputs: Tensor) -> None:
    assert gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(function, inputs, fast_mode=True)
