"""The list of regularizers that drives every parametrised test, and their Ω in 50 digits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest
import torch
from torch import Tensor

import fenchel as fy
from fenchel.regularizers import Regularizer
from fenchel.testing._regularizers import distributions  # noqa: F401 (for the tests)


def shannon(p):
    return mp.fsum(v * mp.log(v) for v in p if v > 0)


def tsallis(alpha):
    if alpha == 1:
        return shannon
    if alpha == math.inf:
        return lambda p: mp.mpf(0)
    alpha = mp.mpf(alpha)
    return lambda p: mp.fsum(v**alpha - v for v in p) / (alpha * (alpha - 1))


def norm(q, power=1):
    def omega(p):
        total = max(p) if q == math.inf else mp.fsum(v ** mp.mpf(q) for v in p)
        return (total ** (power / mp.mpf(1 if q == math.inf else q)) - 1) / power

    return omega


def renyi(beta):
    if beta == 1:
        return shannon
    return lambda p: mp.log(mp.fsum(v ** mp.mpf(beta) for v in p if v > 0)) / (mp.mpf(beta) - 1)


def fused_lasso(lam):
    def omega(p):
        return (mp.fsum(v * v for v in p) - 1) / 2 + mp.mpf(lam) * mp.fsum(
            abs(a - b) for a, b in itertools.pairwise(p)
        )

    return omega


def oscar(lam):
    def omega(p):
        return (mp.fsum(v * v for v in p) - 1) / 2 + mp.mpf(lam) * mp.fsum(
            max(a, b) for a, b in itertools.combinations(p, 2)
        )

    return omega


@dataclass(frozen=True)
class Case:
    """A regularizer, its Ω in mpmath, and what is known of it."""

    omega: Regularizer
    truth: Callable
    simplex: bool = True
    smooth: bool = True  # whether the map is differentiable (almost everywhere, not constant)
    entropy: bool = True  # whether Ω is 0 at vertices and symmetric

    def __repr__(self) -> str:
        return repr(self.omega)

    def value(self, p) -> float:
        with mp.workdps(50):
            return float(self.truth([mp.mpf(float(v)) for v in p]))

    def loss(self, scores, p, y) -> float:
        """The loss by its definition, at the maximiser p, in 50 digits."""
        with mp.workdps(50):
            scores, p, y = ([mp.mpf(float(v)) for v in row] for row in (scores, p, y))
            linear = mp.fsum(
                s * (a - b) for s, a, b in zip(scores, p, y, strict=True) if a != 0 or b != 0
            )
            return float(linear + self.truth(y) - self.truth(p))


CASES = [
    Case(fy.Shannon(), shannon),
    Case(fy.Gini(), tsallis(2)),
    *(Case(fy.Tsallis(a), tsallis(a)) for a in (1.0, 1.001, 1.25, 1.5, 1.7, 2.0, 3.0, 6.0)),
    *(Case(fy.Tsallis(a), tsallis(a)) for a in (0.1, 0.5, 0.999)),
    Case(fy.Tsallis(math.inf), tsallis(math.inf), smooth=False),
    Case(fy.Zero(), tsallis(math.inf), smooth=False),
    *(Case(fy.Norm(q), norm(q)) for q in (1.25, 1.5, 2.0, 4.0)),
    Case(fy.Norm(math.inf), norm(math.inf), smooth=False),
    Case(fy.Norm(1.0), norm(1.0), smooth=False),
    *(Case(fy.SquaredNorm(q), norm(q, 2)) for q in (1.25, 1.5, 2.0, 3.0)),
    Case(fy.SquaredNorm(math.inf), norm(math.inf, 2), smooth=False),
    *(Case(fy.Renyi(b), renyi(b)) for b in (0.1, 0.5, 0.9, 0.999, 1.0)),
    *(Case(fy.FusedLasso(lam), fused_lasso(lam), entropy=False) for lam in (0.1, 0.5)),
    *(Case(fy.Oscar(lam), oscar(lam), entropy=False) for lam in (0.02, 0.3)),
    Case(2 * fy.Oscar(0.1), lambda p: 2 * oscar(0.1)(p), entropy=False),
    Case(fy.Squared(), lambda p: mp.fsum(v * v for v in p) / 2, simplex=False),
    Case(2.5 * fy.Gini(), lambda p: mp.mpf(5) / 2 * tsallis(2)(p)),
    Case(0.5 * fy.Norm(1.5), lambda p: norm(1.5)(p) / 2),
]

every_case = pytest.mark.parametrize("case", CASES, ids=repr)
on_the_simplex = pytest.mark.parametrize("case", [c for c in CASES if c.simplex], ids=repr)
every_smooth_case = pytest.mark.parametrize("case", [c for c in CASES if c.smooth], ids=repr)


def randn(*shape: int, rng: torch.Generator, dtype=torch.float64, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=rng, dtype=torch.float64) * scale).to(dtype)


def rows(*tensors: Tensor):
    """Corresponding rows as NumPy vectors."""
    return zip(*(np.asarray(t.detach().double()) for t in tensors), strict=True)
