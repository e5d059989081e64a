"""Every structure by itself: its oracle, its members, its targets, its samples and best lists."""

from __future__ import annotations

import pytest

from fenchel.testing._failure import run
from fenchel.testing._structures import CHECKS
from tests.structures.registry import CASES

PAIRS = [
    pytest.param(check, case, id=f"{check.__name__}-{case}")
    for check, applies in CHECKS
    for case in CASES
    if applies(case)
]


@pytest.mark.parametrize(("check", "case"), PAIRS)
def test_structure(check, case, backend):
    run(f"{case.structure!r} on {case}", check, case)
