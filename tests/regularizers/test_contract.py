"""One contract for every Ω: the map, the value, the loss and the margin belong together."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from fenchel.regularizers.registry import REGULARIZERS
from fenchel.testing._failure import run
from fenchel.testing._regularizers import CHECKS, FlatCase
from tests.regularizers.cases import (
    CASES,
    distributions,
    every_case,
    randn,
    rows,
)

pytestmark = pytest.mark.usefixtures("backend")

SIZES = [1, 2, 5, 40, 300]  # the native core has a path of its own for short rows


def close(got, wanted, tolerance=1e-12):
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)


def targets(n: int, count: int, rng) -> torch.Tensor:
    return torch.randint(0, n, (count,), generator=rng)


def vertices(target: torch.Tensor, n: int) -> torch.Tensor:
    return F.one_hot(target, n).double()


def test_every_regularizer_is_tested():
    assert {type(case.omega) for case in CASES} >= set(REGULARIZERS.values())


# --------------------------------------------------------------------------------------- values


@every_case
def test_omega_is_what_it_says(case, rng):
    p = distributions(12, 7, rng)
    values = [case.value(row) for (row,) in rows(p)]
    close(case.omega(p), torch.tensor(values, dtype=torch.float64))


@every_case
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0])
def test_loss_is_its_definition(case, n, scale, rng):
    scores = randn(8, n, rng=rng, scale=scale)
    p = case.omega.predict(scores)
    target = targets(n, 8, rng)
    for y, given in ((vertices(target, n), target), (distributions(8, n, rng),) * 2):
        values = [case.loss(*row) for row in rows(scores, p, y)]
        close(case.omega.loss(scores, given), torch.tensor(values, dtype=torch.float64))


@every_case
def test_loss_in_float32(case, rng):
    for n in (4, 40, 1000):
        for scale in (0.1, 1.0, 6.0):
            scores = randn(8, n, rng=rng, dtype=torch.float32, scale=scale)
            target = targets(n, 8, rng)
            wanted = case.omega.loss(scores.double(), target)
            got = case.omega.loss(scores, target)
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.double(), wanted, atol=2e-6, rtol=2e-6)


# ------------------------------------------------------- what fenchel.testing checks, for users too

FLAT = [FlatCase(c.omega, c.simplex, c.smooth, entropy=c.simplex and c.entropy) for c in CASES]
FLAT += [FlatCase(fy.FusedLasso(0.0))]
PROPERTIES = [
    pytest.param(check, case, id=f"{check.__name__}-{case}")
    for check, applies in CHECKS
    for case in FLAT
    if applies(case)
]


@pytest.mark.parametrize(("check", "case"), PROPERTIES)
def test_property(check, case):
    run(repr(case), check, case)


@every_case
def test_repr_is_the_call(case):
    if math.inf not in vars(case.omega).values():
        copy = eval(repr(case.omega), {name: getattr(fy, name) for name in fy.__all__})
        assert repr(copy) == repr(case.omega)
