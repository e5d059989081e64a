"""Every map against its reference on at least 10^5 rows that nobody chose.

Hypothesis draws a few numbers (length, kind, scale, shift, parameter, seed); NumPy makes a batch of
rows from them. A failing batch shrinks to its simplest description and names the row.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import fenchel as fy
from fenchel.maps.declaration import Argument
from tests.maps.cases import ATOL, INF, assert_matches_reference, every_map

ROWS = 100_000

lengths = st.one_of(
    st.integers(1, 9),
    st.integers(1, 64),
    st.sampled_from([100, 257, 1000, 4099]),
)
kinds = st.sampled_from(["normal", "ties", "grid", "outliers", "near ties", "flat", "peak"])
scales = st.one_of(st.just(1.0), st.floats(-8, 8).map(lambda e: 10.0**e), st.floats(0.05, 5.0))
shifts = st.sampled_from([0.0, 0.0, 0.0, 1.0, -300.0, 1e4, 1e8])
dtypes = st.sampled_from(
    [torch.float32] * 3 + [torch.float64] * 2 + [torch.float16, torch.bfloat16]
)


def parameters(argument: Argument | None) -> st.SearchStrategy:
    """Numbers that a map takes: the examples, and others near the ends of its range and far off."""
    if argument is None:
        return st.none()
    top = min(argument.high, 80.0 if argument.up_to_entries else 1e4)
    offsets = st.floats(-6, 4).map(lambda e: argument.low + 10**e)
    near_the_top = st.floats(-12, -1).map(lambda e: top - 10**e)
    drawn = [st.sampled_from([argument.default, *argument.examples]), offsets]
    drawn += [near_the_top] if math.isfinite(argument.high) else []
    return st.one_of(*drawn).map(lambda value: min(value, top))


def make_rows(draw: np.random.Generator, n: int, kind: str) -> np.ndarray:
    rows = 1024 if n < 10 else 512 if n <= 64 else 4
    if kind == "ties":
        return draw.integers(-2, 3, size=(rows, n)).astype(float)
    if kind == "grid":  # differences that meet margins exactly
        return draw.integers(-16, 17, size=(rows, n)) / 8
    if kind == "outliers":
        return draw.normal(size=(rows, n)) * 10 ** draw.uniform(-3, 3, size=(rows, n))
    if kind == "near ties":
        return draw.integers(-1, 2, size=(rows, n)) + 1e-6 * draw.normal(size=(rows, n))
    if kind == "flat":  # every entry supported
        return draw.uniform(-0.5, 0.5, size=(rows, n)) / n
    if kind == "peak":  # one large term and many small ones in the sum
        return 10 * (draw.integers(n, size=(rows, 1)) == np.arange(n)) * draw.random((rows, 1))
    return draw.normal(size=(rows, n))


def row_parameters(draw: np.random.Generator, argument: Argument, rows: int) -> np.ndarray:
    special = draw.choice([argument.default, *argument.examples], size=rows)
    most = 1.3 if argument.up_to_entries else 3
    other = argument.low + 10 ** draw.uniform(-6, most, rows)
    return np.where(draw.random(rows) < 0.5, special, other)


@every_map
def test_matches_reference_on_many_rows(map_):
    checked = 0
    argument = map_.declared.argument
    available = ["reference", *(["native"] if fy.backends().active == "native" else [])]

    @settings(max_examples=300, report_multiple_bugs=False, suppress_health_check=[*HealthCheck])
    @given(
        n=lengths,
        kind=kinds,
        scale=scales,
        shift=shifts,
        dtype=dtypes,
        masked=st.sampled_from([0.0, 0.0, 0.0, 0.3, 0.9]),
        param=parameters(argument),
        per_row=st.sampled_from([False, False, True]) if map_.per_row else st.just(False),
        seed=st.integers(0, 2**32 - 1),
    )
    def check(n, kind, scale, shift, dtype, masked, param, per_row, seed):
        nonlocal checked
        draw = np.random.default_rng(seed)
        rows = make_rows(draw, n, kind) * scale + shift
        rows[draw.random(rows.shape) < masked] = -INF
        x = torch.from_numpy(rows).to(dtype)
        if per_row:
            numbers = torch.from_numpy(row_parameters(draw, argument, len(x)))
            param = numbers.to(dtype if dtype == torch.float64 else torch.float32)[:, None]
        checked += len(x)
        for name in available:
            note(f"backend {name}")
            with fy.use_backend(name):
                p = map_(x, param)
            assert_matches_reference(map_, x, p, param)
            fine = (x < INF).all(-1) & (x > -INF).any(-1)  # half overflows at the largest scales
            assert (p[fine][x[fine] == -INF] == 0).all()
            if not map_.capped and dtype in (torch.float32, torch.float64):
                off = (p[fine].double().sum(-1) - 1).abs()
                assert (off <= ATOL[dtype] * math.log2(n + 1)).all(), f"sum off by {off.max():.3g}"

    check()
    assert checked >= ROWS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@every_map
def test_long_rows(map_, dtype, backend):
    """A vocabulary's length, at scales from nearly flat to nearly one-hot."""
    draw = np.random.default_rng(0)
    # The reference of a map that fuses merges two groups at a time.
    n = 1000 if map_.declared.lengths and backend == "reference" else 32_000
    for scale in (1e-4, 0.1, 1.0, 3.0, 30.0):
        x = torch.from_numpy(draw.normal(size=(2, n)) * scale).to(dtype)
        assert_matches_reference(map_, x, map_(x))
