"""Gradients of values are means, gradients of losses means minus targets; and those after them."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel import kernels
from fenchel.solvers import sparsemap as solver
from tests.regularizers.structured_cases import CASES, blocks, rebuild
from tests.regularizers.structured_truth import close, every_pair, pairs

pytestmark = pytest.mark.usefixtures("backend")


class OnlyAnArgmax(fy.Structure):
    """One cell in every row of a matrix, without a kernel."""

    event_dim = 2

    def argmax(self, scores):
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])


def shared(means, leaves):
    """Means of each instance, summed where the instances share a score."""
    return [m.sum_to_size(x.shape) for m, x in zip(blocks(means), blocks(leaves), strict=True)]


def functions(omega, case):
    """predict and loss of a case as functions of its blocks."""
    ours = omega.make(case.structure)
    target, _ = case.targets(1)

    def predict(*leaves):
        return tuple(blocks(ours.predict(rebuild(case.scores, leaves), **case.sizes)))

    def loss(*leaves):
        return ours.loss(rebuild(case.scores, leaves), target, **case.sizes, cost=0.3)

    return predict, loss


@every_pair
def test_the_gradient_of_the_value_is_the_mean(omega, case):
    ours, leaves = omega.make(case.structure), case.leaves()
    value = ours.conjugate(leaves, **case.sizes)
    grads = torch.autograd.grad(value.sum(), blocks(leaves))
    means = shared(ours.predict(case.scores, **case.sizes), leaves)
    for grad, mean in zip(grads, means, strict=True):
        close(grad, mean, 1e-12)


@every_pair
def test_the_gradient_of_the_loss_is_mean_minus_target(omega, case, rng):
    ours, leaves = omega.make(case.structure), case.leaves()
    target, members = case.targets(2)
    weights = torch.rand(case.batch_shape, generator=rng, dtype=torch.float64)
    loss = ours.loss(leaves, target, **case.sizes)
    grads = torch.autograd.grad((weights * loss).sum(), blocks(leaves))
    problem = case.problem
    residual = case.flat(ours.predict(case.scores, **case.sizes)) - members
    residual = problem.restore(residual * weights.reshape(-1, 1))
    for grad, wanted in zip(grads, shared(residual, leaves), strict=True):
        close(grad, wanted, 1e-12)


@pairs(smooth=True, names="marginals-")
def test_derivatives_of_every_order(omega, case):
    predict, loss = functions(omega, case)
    leaves = blocks(case.leaves())
    assert torch.autograd.gradcheck(predict, leaves, fast_mode=True)
    assert torch.autograd.gradcheck(loss, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(predict, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(loss, leaves, fast_mode=True)


@pairs(names="sparsemap-")
def test_derivatives_of_sparsemap(omega, case):
    """Almost everywhere the mean is linear in the scores; the loss has the envelope's Hessian."""
    predict, loss = functions(omega, case)
    leaves = blocks(case.leaves())
    assert torch.autograd.gradcheck(predict, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(loss, leaves, fast_mode=True)


@pairs(names="dp-l2")
def test_derivatives_of_a_piecewise_smooth_program(omega, case):
    predict, loss = functions(omega, case)
    leaves = blocks(case.leaves())
    assert torch.autograd.gradcheck(predict, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(loss, leaves, fast_mode=True)


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


def test_the_best_has_no_gradient():
    for case in CASES:
        for block in blocks(fy.MAP(case.structure).predict(case.leaves(), **case.sizes)):
            assert not block.requires_grad


def test_second_derivatives_of_the_best_are_zero():
    for case in CASES:
        for leaves in (case.leaves(),):
            value = fy.MAP(case.structure).conjugate(leaves, **case.sizes).sum()
            inputs = [x for x in blocks(leaves) if x.requires_grad]
            first = torch.autograd.grad(value, inputs, create_graph=True)
            assert any((g != 0).any() for g in first)
            pulled = sum((g * (1 + torch.arange(g.numel()).reshape(g.shape))).sum() for g in first)
            second = torch.autograd.grad(pulled, inputs, create_graph=True)
            assert all((h == 0).all() for h in second)
            third = torch.autograd.grad(sum(h.sum() for h in second), inputs)
            assert all((h == 0).all() for h in third)


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
