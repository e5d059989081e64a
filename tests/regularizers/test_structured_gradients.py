"""Gradients that test_structured.py does not look at: Jacobians, costs, faces, what is kept."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel import kernels
from fenchel.solvers import sparsemap as solver
from tests.regularizers.structured_cases import CASES
from tests.regularizers.structured_truth import close

pytestmark = pytest.mark.usefixtures("backend")


class OnlyAnArgmax(fy.Structure):
    """One cell in every row of a matrix, without a kernel."""

    event_dim = 2

    def argmax(self, scores):
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name in ("chain", "tree", "path", "subsets")]
)
@pytest.mark.parametrize("omega", ["marginals", "sparsemap"])
def test_the_jacobian_of_the_mean_is_symmetric_and_positive(omega, case):
    kind = {"marginals": fy.Marginals, "sparsemap": fy.SparseMAP}[omega]
    problem = case.problem
    ours = kind(case.structure)

    def mean(flat):
        from dataclasses import replace

        return ours.mean(replace(problem, scores=flat)).sum(0)

    jacobian = torch.autograd.functional.jacobian(mean, problem.scores).transpose(0, 1)
    for matrix in jacobian:
        close(matrix, matrix.T, 1e-10)
        assert torch.linalg.eigvalsh(matrix).amin() > -1e-10
    assert (jacobian != 0).any()


def test_the_loss_trains_costs_too():
    """A cost may be learned: the gradient in it is that of the unary scores, target included."""
    scores = torch.tensor([[0.3, 0.2, -1.0]], dtype=torch.float64)
    cost = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    for ours in (fy.MAP(fy.OneOf()), fy.Marginals(fy.OneOf()), fy.SparseMAP(fy.OneOf())):
        loss = ours.loss(scores, torch.tensor([1]), cost=cost)
        (grad,) = torch.autograd.grad(loss.sum(), cost)
        close(grad, ours.predict(scores) - torch.tensor([[0.0, 1.0, 0.0]]), 1e-12)


@pytest.mark.parametrize(
    "structure", [fy.DependencyTree(), OnlyAnArgmax()], ids=["built-in", "own"]
)
def test_a_face_is_completed_only_for_a_second_derivative_of_the_loss(structure, monkeypatch):
    asked: list[bool] = []

    def watched(solve):
        def solved(*arguments):
            asked.append(arguments[-1])
            return solve(*arguments)

        return solved

    for module, name in ((kernels, "active_set"), (solver, "active_set")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    scores = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    target = torch.eye(3, 4) if isinstance(structure, OnlyAnArgmax) else torch.tensor([0, 1, 2])
    omega = fy.SparseMAP(structure)
    for value in (omega.loss(scores, target), omega.conjugate(scores)):
        asked.clear()
        (grad,) = torch.autograd.grad(value.sum(), scores, create_graph=True)
        assert not any(asked)
        (second,) = torch.autograd.grad(grad.square().sum(), scores)
        assert any(asked)
        assert second.abs().sum() > 0
    asked.clear()
    omega.predict(scores)
    assert any(asked)


def test_scores_that_change_before_the_second_derivative_are_noticed():
    leaf = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    scores = leaf * 1.0
    value = fy.SparseMAP(fy.Assignment()).conjugate(scores)
    (grad,) = torch.autograd.grad(value.sum(), scores, create_graph=True)
    with torch.no_grad():
        scores.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(grad.square().sum(), scores)
