"""The log-partition of subsets and its gradient, against the enumeration of all subsets."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from fenchel import FenchelError
from fenchel.structures import KSubsets, OneOf
from tests.structures.members import members_of


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("n, k", [(1, 1), (5, 1), (5, 2), (6, 3), (4, 4), (6, 5)])
def test_against_enumeration(n, k, scale, rng):
    scores = scale * torch.randn(3, n, generator=rng, dtype=torch.float64)
    if n - 1 > k:
        scores[1, 0] = -math.inf
    lengths = torch.tensor([n, n, max(k, n - 1)])
    structure = KSubsets(k)
    problem = structure.problem("test", scores, lengths)
    value = structure.smoothed_max(problem, "entropy", 0.7)
    means = structure.smoothed_argmax(problem, "entropy", 0.7)
    for row, length in enumerate(lengths.tolist()):
        lists = list(members_of(structure, length))
        y = torch.zeros(len(lists), n, dtype=torch.float64)
        for at, parts in enumerate(lists):
            y[at, list(parts)] = 1
        s = torch.where(y > 0, scores[row], 0.0).sum(1) / 0.7
        torch.testing.assert_close(value[row], 0.7 * torch.logsumexp(s, 0))
        torch.testing.assert_close(means[row], torch.softmax(s, 0) @ y)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_gradients_of_every_order(k, rng):
    scores = torch.randn(2, 4, generator=rng, dtype=torch.float64).requires_grad_()
    lengths, structure = torch.tensor([4, 3]), KSubsets(k)

    def value(x):
        return structure.smoothed_max(structure.problem("test", x, lengths), "entropy", 0.8)

    def means(x):
        return structure.smoothed_argmax(structure.problem("test", x, lengths), "entropy", 0.8)

    for function in (value, means):
        assert torch.autograd.gradcheck(function, (scores,))
        assert torch.autograd.gradgradcheck(function, (scores,))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_masks_and_padding_get_exact_zeros(k, rng):
    scores = torch.randn(1, 5, generator=rng, dtype=torch.float64)
    padded = torch.cat([scores, torch.full((1, 2), math.nan).double()], 1)
    padded[0, 1] = scores[0, 1] = -math.inf
    padded.requires_grad_()
    structure = KSubsets(k)
    alone = structure.problem("test", scores)
    problem = structure.problem("test", padded, torch.tensor([5]))
    value = structure.smoothed_max(problem, "entropy", 1.0)
    assert torch.equal(value, structure.smoothed_max(alone, "entropy", 1.0))
    (grad,) = torch.autograd.grad(value.sum(), padded, create_graph=True)
    means = structure.smoothed_argmax(problem, "entropy", 1.0)
    assert torch.equal(means[:, :5], structure.smoothed_argmax(alone, "entropy", 1.0))
    torch.testing.assert_close(grad, means)
    (second,) = torch.autograd.grad((grad**2).sum(), padded, create_graph=True)
    (third,) = torch.autograd.grad((second**2).sum(), padded)
    for order in (grad, second, third):
        assert bool(order.isfinite().all())
        assert bool((order[0, [1, 5, 6]] == 0).all())


def test_one_of_is_softmax(rng):
    scores = torch.randn(4, 9, generator=rng, dtype=torch.float64)
    problem = OneOf().problem("test", scores)
    means = OneOf().smoothed_argmax(problem, "entropy", 0.5)
    assert torch.equal(means, torch.softmax(scores / 0.5, -1))


def test_counts_and_many_items(rng):
    problem = KSubsets(7).problem("test", torch.zeros(2, 300, dtype=torch.float64))
    count = KSubsets(7).smoothed_max(problem, "entropy", 1.0)
    expected = math.log(math.comb(300, 7))
    torch.testing.assert_close(
        count, torch.full((2,), expected, dtype=torch.float64), rtol=1e-12, atol=0
    )
    means = KSubsets(7).smoothed_argmax(problem, "entropy", 1.0)
    torch.testing.assert_close(
        means, torch.full((2, 300), 7 / 300, dtype=torch.float64), rtol=1e-10, atol=0
    )
    wide = 50 * torch.randn(1, 300, generator=rng, dtype=torch.float64)
    means = KSubsets(7).smoothed_argmax(KSubsets(7).problem("test", wide), "entropy", 1.0)
    assert float(means.sum()) == pytest.approx(7.0, abs=1e-10)


def test_there_is_no_l2_program():
    problem = KSubsets(2).problem("test", torch.zeros(3))
    for call in (KSubsets(2).smoothed_max, KSubsets(2).smoothed_argmax):
        with pytest.raises(FenchelError, match="no dynamic program for the smoothing 'l2'"):
            call(problem, "l2", 1.0)


def test_adding_a_constant_to_all_items_moves_the_value_only():
    x = torch.tensor([[0.3, -1.0, 2.0, 0.5]], dtype=torch.float64)
    structure = KSubsets(2)
    near, far = (structure.problem("test", x + c) for c in (0.0, 1e3))
    value = structure.smoothed_max(far, "entropy", 1.0) - 2e3
    torch.testing.assert_close(value, structure.smoothed_max(near, "entropy", 1.0))
    pairs = [a + b for a, b in itertools.combinations(x[0].tolist(), 2)]
    assert float(value) == pytest.approx(math.log(sum(map(math.exp, pairs))))
