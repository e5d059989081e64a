"""Gradients of smoothed maxima over sequences: every order, masks, padding, long chains."""

from __future__ import annotations

import math

import pytest
import torch

from fenchel.structures import Sequence, SequenceScores
from tests.structures.sequences import BLOCKS, make, requiring


@pytest.mark.parametrize("transitions, start, end", [BLOCKS[0], BLOCKS[7], BLOCKS[11], BLOCKS[15]])
@pytest.mark.parametrize("omega", ["entropy", "l2"])
def test_gradients_of_every_order(transitions, start, end, omega, rng, backend):
    scores = make(rng, (2,), 3, 2, transitions, start, end, scale=0.4)
    lengths = torch.tensor([3, 2])
    structure = Sequence(2)
    given = [x.requires_grad_() for x in scores if x is not None]
    names = [name for name, x in zip(scores._fields, scores, strict=True) if x is not None]

    def problem(*blocks):
        return structure.problem(
            "test", SequenceScores(**dict(zip(names, blocks, strict=True))), lengths
        )

    def value(*blocks):
        return structure.smoothed_max(problem(*blocks), omega, 0.8)

    def means(*blocks):
        return structure.smoothed_argmax(problem(*blocks), omega, 0.8)

    assert torch.autograd.gradcheck(value, given)
    assert torch.autograd.gradgradcheck(value, given, fast_mode=True)
    assert torch.autograd.gradcheck(means, given)
    assert torch.autograd.gradgradcheck(means, given, fast_mode=True)


@pytest.mark.parametrize("omega", ["entropy", "l2"])
def test_minus_infinity_gives_no_nan_and_zero_gradients(omega, rng, backend):
    scores = make(rng, (2,), 4, 3, "shared", True, True)
    scores.emissions[:, 1, 2] = -math.inf
    scores.transitions[0, 1] = -math.inf
    scores.transitions[:, 2] = -math.inf
    scores.start[0] = -math.inf
    scores = requiring(scores)
    structure = Sequence(3)
    problem = structure.problem("test", scores)
    given = list(scores)
    value = structure.smoothed_max(problem, omega, 1.0).sum()
    first = torch.autograd.grad(value, given, create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), given, create_graph=True)
    third = torch.autograd.grad(sum((g**2).sum() for g in second), given)
    for order in (first, second, third):
        for block, g in zip(given, order, strict=True):
            assert bool(g.isfinite().all())
            assert bool((g[block == -math.inf] == 0).all())


@pytest.mark.parametrize("transitions", [None, "shared", "each"])
@pytest.mark.parametrize("omega", ["entropy", "l2"])
def test_padding_changes_nothing(transitions, omega, rng, backend):
    scores = make(rng, (3,), 6, 4, transitions, True, True)
    structure, lengths = Sequence(4), torch.tensor([6, 4, 1])
    for row, length in enumerate(lengths.tolist()):
        scores.emissions[row, length:] = math.nan
        if transitions == "each":
            scores.transitions[row, max(0, length - 1) :] = math.inf
    padded = requiring(scores)
    problem = structure.problem("test", padded, lengths)
    value = structure.smoothed_max(problem, omega, 1.0)
    means = structure.smoothed_argmax(problem, omega, 1.0)
    weights = torch.arange(problem.scores.shape[1]).double().sin()
    total = value.sum() + (problem.means(means).emissions[:, 0] * weights[:4]).sum()
    grads = torch.autograd.grad(total, [x for x in padded if x is not None])
    assert bool((grads[0][torch.arange(6) >= lengths[:, None]] == 0).all())
    if transitions == "each":
        assert bool((grads[1][torch.arange(5) >= lengths[:, None] - 1] == 0).all())
    for row, length in enumerate(lengths.tolist()):
        pick = slice(row, row + 1)
        a = padded.transitions
        if transitions == "each":
            a = a[pick, : length - 1]
        alone = SequenceScores(padded.emissions[pick, :length], a, padded.start, padded.end[pick])
        alone = requiring(
            SequenceScores(*(None if x is None else x.detach().clone() for x in alone))
        )
        small = structure.problem("test", alone)
        assert torch.equal(structure.smoothed_max(small, omega, 1.0), value[pick])
        expected = problem.means(means)
        got = small.means(structure.smoothed_argmax(small, omega, 1.0))
        assert torch.equal(got.emissions, expected.emissions[pick, :length])
        assert torch.equal(got.end, expected.end[pick])
        total = (
            structure.smoothed_max(small, omega, 1.0).sum()
            + (got.emissions[:, 0] * weights[:4]).sum()
        )
        (grad,) = torch.autograd.grad(total, alone.emissions)
        assert torch.equal(grad, grads[0][pick, :length])


@pytest.mark.parametrize("omega", ["entropy", "l2"])
def test_a_training_step_on_a_long_chain(omega, rng):
    k, positions = 50, 1000
    scores = requiring(make(rng, (2,), positions, k, "shared", True, True))
    structure = Sequence(k)
    problem = structure.problem("test", scores, torch.tensor([1000, 700]))
    value = structure.smoothed_max(problem, omega, 1.0)
    given = list(scores)
    first = torch.autograd.grad(value.sum(), given, create_graph=True)
    torch.testing.assert_close(
        first[0].sum((1, 2)), torch.tensor([1000.0, 700.0]).double(), atol=1e-8, rtol=0
    )
    torch.testing.assert_close(first[1].sum(), torch.tensor(1698.0).double(), atol=1e-8, rtol=0)
    direction = torch.randn(k, k, generator=rng, dtype=torch.float64)
    turned = torch.autograd.grad((first[1] * direction).sum(), given)
    # Moving all transitions along the direction moves the means along the product.
    step = 1e-6

    def shifted(sign):
        moved = scores._replace(transitions=scores.transitions + sign * step * direction)
        other = structure.problem("test", moved, torch.tensor([1000, 700]))
        return other.means(structure.smoothed_argmax(other, omega, 1.0)).emissions

    slope = (shifted(1) - shifted(-1)).detach() / (2 * step)
    if omega == "entropy":
        torch.testing.assert_close(turned[0], slope, atol=1e-6, rtol=1e-4)
    assert all(bool(t.isfinite().all()) for t in turned)
