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
from fenchel.maps.declaration import MAPS as DECLARED
from fenchel.maps.declaration import Map
from tests.reference import REFERENCE, normmax_uncertainty

INF = math.inf

# float64 and float32 of CORRECTNESS.md. Half computes in float32 and rounds once: half a unit in
# the last place on top of float32's error.
ATOL = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 1e-6, torch.bfloat16: 1e-6}
ROUNDING = dict.fromkeys(ATOL, 0.0) | {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


#: Below this parameter a map has tails so heavy that even scores of -1e9 keep some mass.
HEAVY_BELOW = {"entmax": 1.0, "renyimax": 1.0}


@dataclass(frozen=True)
class MapCase:
    """A map as its declaration has it: call it as ``map_(scores, param, dim=…, mask=…)``."""

    declared: Map

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def function(self) -> Callable[..., Tensor]:
        return self.declared.function

    @property
    def parameter(self) -> str | None:
        """The keyword of its parameter."""
        return None if self.declared.argument is None else self.declared.argument.keyword

    @property
    def params(self) -> tuple[float | None, ...]:
        """Values to test, the default first."""
        argument = self.declared.argument
        return (None,) if argument is None else (argument.default, *argument.examples)

    @property
    def smooth(self) -> tuple[float | None, ...]:
        """Those at which finite differences tell the derivative."""
        argument = self.declared.argument
        return tuple(v for v in self.params if argument is None or v not in argument.rough)

    @property
    def per_row(self) -> bool:
        """Whether its parameter may be a tensor."""
        argument = self.declared.argument
        return argument is not None and argument.per_row

    @property
    def symmetric(self) -> bool:
        return self.declared.symmetric

    @property
    def capped(self) -> bool:
        """Whether a row has some other mass than 1, and an entry at most 1."""
        argument = self.declared.argument
        return argument is not None and argument.up_to_entries

    @property
    def heavy_below(self) -> float:
        return HEAVY_BELOW.get(self.name, 0.0)

    def __call__(self, scores: Tensor, param: float | Tensor | None = None, **kwargs) -> Tensor:
        if self.capped and not isinstance(param, Tensor):
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
        value = self.declared.default if param is None else param
        return min(self.declared.mass(value), n)


MAPS = {name: MapCase(declared) for name, declared in sorted(DECLARED.items())}
PER_ROW = [name for name, map_ in MAPS.items() if map_.per_row]
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


def assert_matches_reference(map_: MapCase, scores: Tensor, p: Tensor, param=None) -> None:
    """``p`` is the map of ``scores`` along the last axis, to the accuracy promised for its dtype.

    The truth is that of the input as rounded to its dtype, so no error of the input is forgiven.
    """
    assert p.dtype == scores.dtype
    assert p.shape == scores.shape
    if isinstance(param, Tensor):  # one per row
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
