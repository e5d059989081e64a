"""Ω at means, and the Bregman divergence: edges that test_structured.py does not have."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from tests.regularizers.structured_cases import blocks
from tests.regularizers.structured_truth import close


def test_a_mean_on_the_boundary_has_a_value():
    """Item 0 is in every subset: its score is infinite, the entropy that of the rest."""
    omega = fy.Marginals(fy.KSubsets(2))
    mean = torch.tensor([1.0, 0.5, 0.5], dtype=torch.float64)
    close(omega(mean), -torch.tensor(2.0, dtype=torch.float64).log(), 1e-11)
    close(omega(torch.tensor([1.0, 1.0, 0.0, 0.0])), torch.tensor(0.0))


@pytest.mark.parametrize(
    "omega",
    [
        fy.Marginals(fy.DependencyTree(), 0.8),
        fy.Marginals(fy.KSubsets(2)),
        fy.SmoothedDP(fy.Sequence(3), "entropy", 0.5),
        fy.SparseMAP(fy.DependencyTree(), 2.0),
    ],
    ids=repr,
)
def test_the_gradient_of_omega_has_the_mean(omega, rng):
    shape = (3, 4) if omega.structure.event_dim == 2 else (4,)
    shape = (3, 3) if isinstance(omega.structure, fy.Sequence) else shape
    scores = torch.randn(2, *shape, generator=rng, dtype=torch.float64)
    mean = omega.predict(scores).requires_grad_()
    (grad,) = torch.autograd.grad(omega(mean).sum(), mean)
    close(omega.predict(grad), mean.detach(), 1e-10)


def test_means_of_nothing_are_noticed():
    omega = fy.Marginals(fy.OneOf())
    with pytest.warns(UserWarning, match=r"Marginals: no scores have these means, .*OneOf\(\)\?"):
        omega(torch.tensor([0.5, 0.9]))


def test_forms_that_differ_are_refused():
    omega = fy.Marginals(fy.OneOf())
    with pytest.raises(fy.FenchelError, match="expected `y` and `p` of one form, but they differ"):
        omega.bregman(torch.ones(3) / 3, torch.ones(4) / 4)


def test_an_empty_batch_has_no_values():
    for structure, shape in ((fy.OneOf(), (0, 3)), (fy.DependencyTree(), (0, 2, 3))):
        omega = fy.Marginals(structure)
        assert omega(torch.zeros(shape)).shape == (0,)
        assert omega.bregman(torch.zeros(shape), torch.zeros(shape)).shape == (0,)


def test_blocks_of_a_chain_have_one_value(rng):
    scores = fy.SequenceScores(
        torch.randn(2, 4, 3, generator=rng), torch.randn(3, 3, generator=rng)
    )
    omega = fy.Marginals(fy.Sequence(3))
    mean = omega.predict(scores)
    assert all(block.dtype == torch.float32 for block in blocks(mean))
    value = omega(mean)
    assert value.dtype == torch.float32
    close(-value, omega.entropy(scores), 1e-5)
