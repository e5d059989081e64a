"""Every structured Ω, and the pairs of one with a structure that the shared tests run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import fenchel as fy
from fenchel.regularizers import StructuredRegularizer
from fenchel.testing import _edges  # noqa: F401 (enters its properties)
from fenchel.testing._cases import scores_of
from fenchel.testing._structured import PROPERTIES
from fenchel.testing._truth import projection
from tests.structures.registry import CASES

__all__ = ["LEAN", "OMEGAS", "close", "pairs", "projection", "properties", "scores_of"]


@dataclass(frozen=True)
class Omega:
    """A regularizer, and which smoothing of a structure it needs."""

    name: str
    make: Callable[[fy.Structure], StructuredRegularizer]
    needs: str = ""

    def __repr__(self) -> str:
        return self.name


OMEGAS = [
    Omega("map", fy.MAP),
    Omega("marginals", fy.Marginals, "entropy"),
    Omega("marginals-0.3", lambda s: fy.Marginals(s, 0.3), "entropy"),
    Omega("sparsemap", fy.SparseMAP),
    Omega("sparsemap-0.4", lambda s: fy.SparseMAP(s, 0.4)),
    Omega("dp-entropy", lambda s: fy.SmoothedDP(s, "entropy", 0.6), "l2"),
    Omega("dp-l2", lambda s: fy.SmoothedDP(s, "l2", 0.8), "l2"),
]
PAIRS = [
    (omega, case)
    for omega in OMEGAS
    for case in CASES
    if not omega.needs or omega.needs in case.structure.smoothings
]

#: One of each kind, for what costs time and has nothing to do with gamma.
LEAN = ("map", "marginals-", "sparsemap-", "dp-l2")


def pairs(names: str | tuple[str, ...] = ""):
    """The pairs of an Ω and a case, of some kinds."""
    kept = [pair for pair in PAIRS if pair[0].name.startswith(names)]
    return pytest.mark.parametrize(
        ("omega", "case"), [pytest.param(*pair, id=f"{pair[0]}-{pair[1]}") for pair in kept]
    )


def properties(group: str):
    """What fenchel.testing checks in a group, on every pair that it applies to."""
    found = []
    for each in PROPERTIES:
        for omega, case in PAIRS:
            if each.group != group or (each.lean and not omega.name.startswith(LEAN)):
                continue
            ours = omega.make(case.structure)
            if each.applies(ours, case):
                name = f"{each.check.__name__}-{omega}-{case}"
                found.append(pytest.param(each.check, ours, case, id=name))
    return pytest.mark.parametrize(("check", "omega", "case"), found)


def close(got, wanted, tolerance=1e-9):
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)
