"""A declaration says what is true of its map: its Ω, its margin, its defaults."""

from __future__ import annotations

import inspect

import pytest
import torch

import fenchel as fy
from fenchel.maps.declaration import GAMMA, MAPS
from fenchel.regularizers.of_map import MapRegularizer
from fenchel.regularizers.registry import REGULARIZERS
from tests.maps.cases import CASES, INF, randn

every_map = pytest.mark.parametrize("declared", MAPS.values(), ids=MAPS.keys())
every_case = pytest.mark.parametrize(("map_", "param"), CASES)


def omega_of(declared, value):
    kind = getattr(fy, declared.omega)
    return kind(value) if inspect.signature(kind).parameters else kind()


def test_every_public_map_is_declared():
    others = {"oscarmax_approx", "sparse_entmax", "SparseRows"}
    assert MAPS.keys() == set(fy.maps.__all__) - others
    assert all(getattr(fy, name) is declared.function for name, declared in MAPS.items())


@every_map
def test_defaults_are_those_of_the_function(declared):
    parameters = inspect.signature(declared.function).parameters
    assert parameters["gamma"].default == GAMMA.default
    assert ("lengths" in parameters) == declared.lengths
    if declared.argument is not None:
        assert parameters[declared.argument.keyword].default == declared.argument.default


@every_case
def test_omega_is_that_of_the_map(map_, param, rng):
    declared = map_.declared
    if not declared.omega:
        pytest.skip("has none")
    value = declared.default if param is None else param
    omega = omega_of(declared, value)
    assert omega.margin == declared.margin(value)
    x = randn(5, 7, rng=rng)
    assert torch.equal(omega.predict(x), map_(x, param))


def test_every_omega_with_a_map_is_named_by_it():
    named = {declared.omega for declared in MAPS.values()} - {""}
    own = {kind.__name__ for kind in REGULARIZERS.values() if issubclass(kind, MapRegularizer)}
    assert own - named == {"Zero"}  # the limit of Tsallis, without a name among the maps
    assert named <= own


@every_case
@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_answer_is_one_hot_from_the_margin_on(map_, param, n):
    value = map_.declared.default if param is None else param
    margin = map_.declared.margin(value)
    if margin == INF or map_.capped:
        pytest.skip("has no margin for every number of classes")
    for place in range(n):
        x = torch.zeros(n, dtype=torch.float64)
        x[place] = margin * (1 + 1e-9) + 1e-300
        p = map_(x, param)
        assert float(p[place]) == 1 and int((p > 0).sum()) == 1
    if map_.symmetric and margin > 0:
        steep = 1 < value < 1.01  # a power of 1,000: nearer to the margin it is 0 in float64
        x[place] = margin * (0.5 if steep else 1 - 1e-6)
        assert int((map_(x, param) > 0).sum()) > 1


@every_case
def test_sparse_maps_have_zeros_and_dense_ones_have_none(map_, param, rng):
    value = map_.declared.default if param is None else param
    if map_.declared.sparse(value):
        far = torch.tensor([0.0, -1e4, 1e4, 2e4, -3e4], dtype=torch.float64)
        assert (map_(far, param) == 0).any() or map_.total(5, param) >= 4
    else:
        assert (map_(randn(6, 9, rng=rng), param) > 0).all()
