"""The contract that ships as ``fenchel.testing.check_map``, on every map of the library."""

from __future__ import annotations

import pytest

from fenchel.testing import _maps as contract
from fenchel.testing._failure import run, sentence_of
from tests.maps.cases import CASES, INF, MapCase


def case_of(map_: MapCase, param: float | None) -> contract.MapCase:
    """What the declaration says of a map at a parameter, as the contract asks for it."""
    value = map_.declared.default if param is None else param
    steep = map_.name != "fusedmax" and value > 2  # p^(2−α) magnifies the roundings of small p
    heavy = value < map_.heavy_below
    far = 50 < map_.declared.margin(value) < INF  # zeros begin beyond what the check looks at
    return contract.MapCase(
        function=lambda scores, dim=-1, mask=None: map_(scores, param, dim=dim, mask=mask),
        name=map_.name,
        symmetric=map_.symmetric,
        sparse=None if map_.capped or heavy or far else map_.declared.sparse(value),
        mass=lambda n: map_.total(n, param),
        shift=True,
        smooth=param in map_.smooth and not map_.capped,
        bits=True,
        tolerance=1e-6 if steep else 1e-12,
    )


@pytest.mark.parametrize(("map_", "param"), CASES)
@pytest.mark.parametrize(
    ("check", "applies"), contract.CHECKS, ids=lambda value: getattr(value, "__name__", "")
)
def test_contract(check, applies, map_, param, backend):
    if map_.declared.lengths and backend == "reference" and param not in map_.params[:2]:
        pytest.skip("the reference merges two groups at a time: two penalties are enough")
    case = case_of(map_, param)
    if not applies(case):
        pytest.skip(f"not promised: {sentence_of(check)}")
    run(case.name, check, case)
