"""Every Ω on every structure against all members: maximum, mean, value, loss, gradients, edges."""

from __future__ import annotations

import pytest

import fenchel as fy
from fenchel.testing._failure import run
from tests.regularizers.structured_truth import OMEGAS, properties

backends = pytest.mark.usefixtures("backend")


def test_every_structure_and_regularizer_is_tested():
    from fenchel.regularizers import StructuredRegularizer
    from fenchel.structures._structure import BuiltIn
    from tests.regularizers.structured_cases import CASES

    def leaves(cls):
        below = cls.__subclasses__()
        own = {cls} if not cls.__abstractmethods__ else set()
        return own | {leaf for sub in below for leaf in leaves(sub)}

    theirs = {x for x in leaves(BuiltIn) if x.__module__.startswith("fenchel")}
    assert {type(case.structure) for case in CASES} == theirs
    made = {type(omega.make(fy.Sequence(2))) for omega in OMEGAS}
    assert made == {x for x in leaves(StructuredRegularizer) if x.__module__.startswith("fenchel")}


def test_every_program_has_another_one_to_be_compared_with():
    from tests.regularizers.structured_cases import CASES

    for case in CASES:
        assert (case.recursion is not None) == ("l2" in case.structure.smoothings), case


@backends
@properties("values")
def test_values(check, omega, case):
    run(f"{omega!r} on {case}", check, omega, case)


@backends
@properties("gradients")
def test_gradients(check, omega, case):
    run(f"{omega!r} on {case}", check, omega, case)


@backends
@properties("edges")
def test_edges(check, omega, case):
    run(f"{omega!r} on {case}", check, omega, case)


@properties("omega")
def test_omega_itself(check, omega, case):
    run(f"{omega!r} on {case}", check, omega, case)
