"""The list of maps that drives every parametrised test, and how far each may be from the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

import fenchel as fy
from tests.reference import REFERENCE, normmax_uncertainty

INF = math.inf

# float64 and float32 of CORRECTNESS.md. Half computes in float32 and rounds once: half a unit in
# the last place on top of float32's error.
ATOL = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 1e-6, torch.bfloat16: 1e-6}
ROUNDING = dict.fromkeys(ATOL, 0.0) | {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


@dataclass(frozen=True)
class Map:
    """One public map: call it as ``map_(scores, param, dim=…, mask=…)``."""

    name: str
    function: Callable[..., Tensor]
    parameter: str | None = None  # the keyword of its parameter
    params: tuple[float | None, ...] = (None,)  # values to test, the default first
    smooth: tuple[float | None, ...] = (None,)  # those at which it is differentiable in scores
    number_only: bool = False  # whether its parameter may not be a tensor
    heavy_below: float = 0.0  # for a parameter below it, even scores of -1e9 keep some mass

    def __call__(self, scores: Tensor, param: float | Tensor | None = None, **kwargs) -> Tensor:
        if self.name == "budget" and not isinstance(param, Tensor):
            param = self.params[0] if param is None else param
            if (
                scores.dim() and param > scores.shape[kwargs.get("dim", -1)]
            ):  # refused as a number, not as a tensor
                param = torch.tensor(param, dtype=torch.float64)
        if self.parameter is not None and param is not None:
            kwargs[self.parameter] = param
        return self.function(scores, **kwargs)

    def reference(self, scores: np.ndarray, param=None) -> np.ndarray:
        """The float64 answer along the last axis."""
        param = self.params[0] if param is None else param
        return REFERENCE[self.name](scores, np.nan if param is None else param)

    def total(self, n: int, param: float | None) -> float:
        """What n unmasked entries sum to."""
        return min(self.params[0] if param is None else param, n) if self.name == "budget" else 1.0


MAPS = {
    m.name: m
    for m in (
        Map("softmax", fy.softmax),
        Map("sparsemax", fy.sparsemax),
        Map("entmax15", fy.entmax15),
        Map(
            "entmax",
            fy.entmax,
            "alpha",
            params=(
                *(1.5, 1.0, 1.001, 1.25, 1.75, 2.0, 2.5, 4.0, 50.0, 1e4, INF),
                *(0.01, 0.1, 0.5, 0.9, 0.999),
            ),
            smooth=(1.5, 1.0, 1.001, 1.25, 2.0, 2.5, 4.0, 0.01, 0.5, 0.999),
            heavy_below=1.0,
        ),
        Map(
            "normmax",
            fy.normmax,
            "alpha",
            params=(2.0, 1.0, 1.001, 1.25, 1.5, 3.0, 10.0, 50.0, INF),
            smooth=(2.0, 1.25, 1.5, 3.0, 5.0),
        ),
        Map("budget", fy.budget, "k", params=(2.0, 0.5, 1.0, 2.5, 5.0), smooth=(2.0, 0.5, 2.5)),
        Map(
            "sq_pnorm_max",
            fy.sq_pnorm_max,
            "p",
            params=(1.5, 1.0, 1.001, 1.25, 1.75, 2.0, 2.5, 4.0, 50.0, 1e4, INF),
            smooth=(1.5, 1.25, 1.75, 2.0, 2.5, 4.0),
            number_only=True,
        ),
        Map(
            "renyimax",
            fy.renyimax,
            "beta",
            params=(0.5, 1.0, 0.999, 0.9, 0.1, 0.001),
            smooth=(0.5, 1.0, 0.999, 0.9, 0.1),
            number_only=True,
            heavy_below=1.0,
        ),
    )
}

GROUP_MAPS = {"fusedmax": fy.fusedmax, "oscarmax": fy.oscarmax}

CASES = [
    pytest.param(m, param, id=m.name if param is None else f"{m.name}-{param:g}")
    for m in MAPS.values()
    for param in m.params
]
SMOOTH = [
    pytest.param(m, param, id=m.name if param is None else f"{m.name}-{param:g}")
    for m in MAPS.values()
    for param in m.smooth
]

every_map = pytest.mark.parametrize("map_", MAPS.values(), ids=MAPS.keys())
every_case = pytest.mark.parametrize(("map_", "param"), CASES)
every_smooth_case = pytest.mark.parametrize(("map_", "param"), SMOOTH)
every_dtype = pytest.mark.parametrize("dtype", ATOL, ids=lambda d: str(d).removeprefix("torch."))


def randn(*shape: int, rng: torch.Generator, dtype=torch.float64, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=rng, dtype=torch.float64) * scale).to(dtype)


def assert_matches_reference(map_: Map, scores: Tensor, p: Tensor, param=None) -> None:
    """``p`` is the map of ``scores`` along the last axis, to the accuracy promised for its dtype.

    The truth is that of the input as rounded to its dtype, so no error of the input is forgiven.
    """
    assert p.dtype == scores.dtype
    assert p.shape == scores.shape
    if isinstance(param, Tensor):  # one a row
        param = param.detach().double().expand(*scores.shape[:-1], 1).reshape(-1).numpy()
    x = scores.detach().double().numpy()
    expected = map_.reference(x, param)
    allowed = ATOL[p.dtype] + ROUNDING[p.dtype] * np.abs(expected)
    if map_.name == "normmax":
        allowed = allowed + normmax_uncertainty(x, map_.params[0] if param is None else param)
    got = p.detach().double().numpy()
    error = np.abs(got - expected)
    wrong = ~(error <= allowed) & ~(np.isnan(got) & np.isnan(expected))
    if wrong.any():
        row = tuple(int(i) for i in np.argwhere(wrong)[0][:-1])
        of_row = np.broadcast_to(param, wrong[..., 0].size).reshape(wrong.shape[:-1])[row]
        raise AssertionError(
            f"{map_.name}: {wrong.any(-1).sum()} of {wrong[..., 0].size} rows are wrong, by up to "
            f"{error[wrong].max():.3g}; e.g. row {row} with param {of_row!r}\n"
            f"scores   {x[row].tolist()[:16]}\ngot      {got[row].tolist()[:16]}\n"
            f"expected {expected[row].tolist()[:16]}"
        )


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal in every bit, NaN included (−0 and 0 count as equal)."""
    return (
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    )
