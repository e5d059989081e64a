"""The face of SparseMAP in the core: what its matrix is, and its product, against plain torch."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel import kernels
from fenchel.kernels import _table
from fenchel.kernels._table import definition
from tests.structures.registry import FACES


def _numbers(case):
    """Parts, n_unary, layout, and the sizes of an instance."""
    problem = case.problem
    return problem.scores.shape[1], problem.n_unary, problem.layout, problem.sizes[0].tolist()


CASES = {kind: _numbers(case) for kind, case in FACES.items()}


def test_every_oracle_of_the_core_is_tested():
    assert {f"active_set.{kind}" for kind in CASES} == {
        op for op in _table._kernels if op.startswith("active_set.")
    }


def solve(kind, scores, complete=True):
    if fy.backends().active != "native":
        pytest.skip("no native core here")
    _, n_unary, layout, size = CASES[kind]
    sizes = torch.tensor([size]).expand(len(scores), -1)
    return kernels.active_set(kind, scores, n_unary, layout, sizes, 1000, 1e-12, complete)


def draw(rng, kind, count, scale):
    return scale * torch.randn(count, CASES[kind][0], generator=rng, dtype=torch.float64)


def members(lists, parts):
    """Lists of one instance as counts (members, parts)."""
    counts = torch.zeros(len(lists), parts + 1, dtype=torch.float64)
    places = torch.where(lists < 0, parts, lists).long()
    return counts.scatter_add(1, places, torch.ones_like(places, dtype=torch.float64))[:, :parts]


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_the_matrix_inverts_the_bordered_gram_matrix(kind, scale, rng):
    # After many members have entered and left, in updates of rank one.
    parts, n_unary = CASES[kind][:2]
    faces = solve(kind, draw(rng, kind, 8, scale))
    for lists, matrix in zip(faces.lists, faces.matrix, strict=True):
        size = int((lists[:, 0] >= 0).sum())
        points = members(lists[:size], parts)[:, :n_unary]
        ones = torch.ones(size, 1, dtype=torch.float64)
        gram = torch.cat(
            [torch.cat([points @ points.T, ones], 1), torch.cat([ones.T, ones[:1] * 0], 1)]
        )
        truth = torch.linalg.inv(gram)[:size, :size]
        error = (matrix[:size, :size] - truth).abs().max() / truth.abs().max().clamp(min=1)
        assert error.item() < 1e-8
        assert bool((matrix[size:] == 0).all()) and bool((matrix[:, size:] == 0).all())


@pytest.mark.parametrize("kind", CASES)
def test_the_product_is_that_of_plain_torch(kind, rng):
    faces = solve(kind, draw(rng, kind, 8, 0.5))
    x = draw(rng, kind, 8, 1.0)
    mine = kernels.face_product(faces.lists, faces.matrix, x)
    truth = definition("face_product")(faces.lists, faces.matrix, x)
    torch.testing.assert_close(mine, truth, rtol=0, atol=1e-12)
    # As a matrix: symmetric, and on unary parts a projection.
    n_unary = CASES[kind][1]
    eye = torch.eye(x.shape[1], dtype=torch.float64)
    rows = [face.expand(len(eye), *face.shape) for face in (faces.lists[0], faces.matrix[0])]
    jacobian = kernels.face_product(*rows, eye)
    torch.testing.assert_close(jacobian, jacobian.T, rtol=0, atol=1e-11)
    unary = jacobian[:n_unary, :n_unary]
    torch.testing.assert_close(unary @ unary, unary, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", CASES)
def test_members_of_weight_zero_only_complete_the_face(kind, rng):
    scores = draw(rng, kind, 8, 0.0)
    plain, complete = solve(kind, scores, False), solve(kind, scores)
    assert torch.equal(plain.means, complete.means)
    assert bool((plain.weights.sum(1) - 1).abs().max() < 1e-14)
    assert bool(((plain.weights > 0) == (plain.lists[..., 0] >= 0)).all())
    width = plain.weights.shape[1]
    assert torch.equal(complete.lists[:, :width, : plain.lists.shape[2]], plain.lists)
    assert bool((complete.weights[:, width:] == 0).all())
    assert complete.weights.shape[1] >= width


@pytest.mark.parametrize("kind", CASES)
def test_many_instances_all_end_within_the_tolerance(kind, rng):
    for scale in (1e-3, 0.3, 2.0, 30.0):
        scores = draw(rng, kind, 64, scale)
        rounded = scores.mul(4).round().div(4)  # with many ties
        for x in (scores, rounded):
            faces = solve(kind, x)
            assert bool((faces.status == 0).all()), (scale, faces.gap.max())
            assert bool((faces.weights >= 0).all())


def test_nothing_finite_is_said(rng):
    scores = draw(rng, "assignment", 3, 1.0)
    scores[1, :6] = -torch.inf
    faces = solve("assignment", scores)
    assert faces.status.tolist() == [0, 3, 0]
    assert bool((faces.means[1] == 0).all())
