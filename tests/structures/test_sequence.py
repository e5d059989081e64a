"""Sequences against the enumeration of all of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from fenchel import FenchelError
from fenchel.structures import Sequence, SequenceScores

BLOCKS = list(itertools.product((None, "shared", "item", "each"), (False, True), (False, True)))


def make(rng, batch, positions, k, transitions=None, start=False, end=False, scale=1.0):
    def normal(*shape):
        return scale * torch.randn(*shape, generator=rng, dtype=torch.float64)

    squares = {
        None: None,
        "shared": (k, k),
        "item": (*batch, k, k),
        "each": (*batch, positions - 1, k, k),
    }[transitions]
    return SequenceScores(
        normal(*batch, positions, k),
        None if squares is None else normal(*squares),
        normal(k) if start else None,
        normal(*batch, k) if end else None,
    )


def members(structure, problem, row):
    """All members of an instance: indicator vectors, and their scores."""
    positions, _, kind, start, end = problem.layout
    lists = list(
        structure.enumerate(
            positions,
            (None, "shared", "each")[kind],
            bool(start),
            bool(end),
            length=int(problem.sizes[row, 0]),
        )
    )
    rows = torch.zeros(len(lists), problem.scores.shape[1], dtype=torch.float64)
    for at, parts in enumerate(lists):
        for part in parts:
            rows[at, part] += 1
    used = torch.where(rows > 0, rows * problem.scores[row].detach(), 0.0)
    return rows, used.sum(1)


def requiring(scores):
    return SequenceScores(*(None if x is None else x.requires_grad_() for x in scores))


@pytest.mark.parametrize("transitions, start, end", BLOCKS)
@pytest.mark.parametrize("masks", [False, True])
def test_everything_against_enumeration(transitions, start, end, masks, rng, backend):
    for positions, k in [(1, 2), (2, 3), (4, 3), (5, 2), (3, 1)]:
        scores = make(rng, (4,), positions, k, transitions, start, end)
        lengths = torch.randint(1, positions + 1, (4,), generator=rng)
        mask = None
        if masks:
            mask = torch.rand(4, positions, k, generator=rng) < 0.7
            mask[..., 0] = True
            if scores.transitions is not None and k > 1:
                scores.transitions[..., 0, 1] = -math.inf
        structure = Sequence(k)
        problem = structure._problem("test", scores, lengths, mask)
        best = structure.argmax(scores, lengths=lengths, mask=mask)
        assert best.emissions.shape == scores.emissions.shape
        parts = structure._best_parts(problem, problem.scores)
        value = structure._smoothed_max(problem, "entropy", 0.7)
        means = structure._smoothed_argmax(problem, "entropy", 0.7)
        top, top_scores = structure._k_best(problem, 4)
        for row in range(4):
            y, s = members(structure, problem, row)
            torch.testing.assert_close(problem.score(parts)[row], s.max())
            assert (y == problem.indicator(parts)[row]).all(1).any()
            torch.testing.assert_close(value[row], 0.7 * torch.logsumexp(s / 0.7, 0))
            torch.testing.assert_close(means[row], torch.softmax(s / 0.7, 0) @ y)
            ordered = s.sort(descending=True).values[:4]
            torch.testing.assert_close(top_scores[row, : len(ordered)], ordered)
            assert (top_scores[row, len(ordered) :] == -math.inf).all()
            seen = set()
            for rank in range(4):
                if top_scores[row, rank] > -math.inf:
                    one = problem.indicator(top[:, rank])[row]
                    assert (y == one).all(1).any()
                    torch.testing.assert_close(problem.score(top[:, rank])[row], ordered[rank])
                    seen.add(tuple(one.tolist()))
                else:
                    assert (top[row, rank] == -1).all()
            assert len(seen) == int((ordered > -math.inf).sum())


def sparsemax_node(x):
    """max over the simplex of <p, x> - |p|^2 / 2, and p: by sorting, in numpy."""
    if np.all(np.isneginf(x)):
        return -math.inf, np.zeros_like(x)
    down = np.sort(x)[::-1]
    finite = down[np.isfinite(down)]
    sums = np.cumsum(finite)
    count = max(j for j in range(1, len(finite) + 1) if 1 + j * finite[j - 1] > sums[j - 1])
    p = np.maximum(x - (sums[count - 1] - 1) / count, 0)
    inside = p > 0
    return float(p[inside] @ x[inside] - 0.5 * p @ p), p


@pytest.mark.parametrize("transitions, start, end", BLOCKS)
def test_l2_is_the_recursion_with_sparsemax_at_every_node(transitions, start, end, rng, backend):
    gamma, positions, k = 0.6, 5, 4
    scores = make(rng, (3,), positions, k, transitions, start, end)
    if scores.transitions is not None:
        scores.transitions[..., 2, 1] = -math.inf
    lengths = torch.tensor([5, 3, 1])
    structure = Sequence(k)
    problem = structure._problem("test", scores, lengths)
    value = structure._smoothed_max(problem, "l2", gamma)
    means = problem.means(structure._smoothed_argmax(problem, "l2", gamma)).emissions
    for row, length in enumerate(lengths.tolist()):
        e = scores.emissions[row].numpy() / gamma
        a = np.zeros((positions - 1, k, k))
        if transitions is not None:
            given = scores.transitions.numpy() / gamma
            a[:] = given if transitions == "shared" else given[row]
        v = e[0] + (scores.start.numpy() / gamma if start else 0)
        chosen = []
        for t in range(1, length):
            nodes = [sparsemax_node(v + a[t - 1][:, j]) for j in range(k)]
            chosen.append(np.stack([p for _, p in nodes], 1))
            v = e[t] + np.array([x for x, _ in nodes])
        final, u = sparsemax_node(v + (scores.end[row].numpy() / gamma if end else 0))
        assert float(value[row]) == pytest.approx(gamma * final, abs=1e-10)
        for t in range(length - 1, -1, -1):
            np.testing.assert_allclose(means[row, t].numpy(), u, atol=1e-10)
            if t > 0:
                u = chosen[t - 1] @ u


@pytest.mark.parametrize("transitions, start, end", [BLOCKS[0], BLOCKS[7], BLOCKS[11], BLOCKS[15]])
@pytest.mark.parametrize("omega", ["entropy", "l2"])
def test_gradients_of_every_order(transitions, start, end, omega, rng, backend):
    scores = make(rng, (2,), 3, 2, transitions, start, end, scale=0.4)
    lengths = torch.tensor([3, 2])
    structure = Sequence(2)
    given = [x.requires_grad_() for x in scores if x is not None]
    names = [name for name, x in zip(scores._fields, scores, strict=True) if x is not None]

    def problem(*blocks):
        return structure._problem(
            "test", SequenceScores(**dict(zip(names, blocks, strict=True))), lengths
        )

    def value(*blocks):
        return structure._smoothed_max(problem(*blocks), omega, 0.8)

    def means(*blocks):
        return structure._smoothed_argmax(problem(*blocks), omega, 0.8)

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
    problem = structure._problem("test", scores)
    given = list(scores)
    value = structure._smoothed_max(problem, omega, 1.0).sum()
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
    problem = structure._problem("test", padded, lengths)
    value = structure._smoothed_max(problem, omega, 1.0)
    means = structure._smoothed_argmax(problem, omega, 1.0)
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
        small = structure._problem("test", alone)
        assert torch.equal(structure._smoothed_max(small, omega, 1.0), value[pick])
        expected = problem.means(means)
        got = small.means(structure._smoothed_argmax(small, omega, 1.0))
        assert torch.equal(got.emissions, expected.emissions[pick, :length])
        assert torch.equal(got.end, expected.end[pick])
        total = (
            structure._smoothed_max(small, omega, 1.0).sum()
            + (got.emissions[:, 0] * weights[:4]).sum()
        )
        (grad,) = torch.autograd.grad(total, alone.emissions)
        assert torch.equal(grad, grads[0][pick, :length])


@pytest.mark.parametrize("scale", [1e4, 1e-4])
@pytest.mark.parametrize("omega", ["entropy", "l2"])
def test_large_and_small_scores(scale, omega, rng, backend):
    structure = Sequence(3)
    for transitions in ("shared", "each"):
        scores = make(rng, (2,), 5, 3, transitions, True, True, scale=scale)
        problem = structure._problem("test", scores)
        value = structure._smoothed_max(problem, omega, 1.0)
        means = structure._smoothed_argmax(problem, omega, 1.0)
        for row in range(2):
            y, s = members(structure, problem, row)
            if omega == "entropy":
                torch.testing.assert_close(value[row], torch.logsumexp(s, 0))
                torch.testing.assert_close(means[row], torch.softmax(s, 0) @ y)
            elif scale > 1:
                torch.testing.assert_close(means[row], y[s.argmax()])
            else:
                torch.testing.assert_close(means[row, :15].sum(), torch.tensor(5.0).double())


def test_temperature_limits(rng, backend):
    structure, scores = Sequence(3), make(rng, (2,), 4, 3, "shared", True, True)
    problem = structure._problem("test", scores)
    best = problem.indicator(structure._best_parts(problem, problem.scores))
    for omega in ("entropy", "l2"):
        cold = structure._smoothed_argmax(problem, omega, 1e-4)
        torch.testing.assert_close(cold, best)
        hot = problem.means(structure._smoothed_argmax(problem, omega, 1e9)).emissions
        torch.testing.assert_close(hot, torch.full_like(hot, 1 / 3), atol=1e-6, rtol=0)


def test_ties_take_the_lowest_tags(backend):
    zeros = SequenceScores(torch.zeros(4, 3), torch.zeros(3, 3))
    best = Sequence(3).argmax(zeros)
    assert torch.equal(best.emissions, torch.tensor([[1.0, 0, 0]] * 4))
    count = Sequence(3)._smoothed_max(Sequence(3)._problem("test", zeros), "entropy", 1.0)
    assert float(count) == pytest.approx(4 * math.log(3))


@pytest.mark.parametrize("transitions", [None, "shared", "each"])
def test_samples_have_the_right_frequencies(transitions, rng, backend):
    structure, n = Sequence(2), 4000 if backend == "native" else 600
    scores = make(rng, (2,), 3, 2, transitions, True, True)
    problem = structure._problem("test", scores, torch.tensor([3, 2]))
    parts = structure._sample(problem, n, 0.5, rng)
    assert parts.shape[:2] == (n, 2)
    drawn = torch.stack([problem.indicator(p) for p in parts])
    for row in range(2):
        y, s = members(structure, problem, row)
        p = torch.softmax(s / 0.5, 0)
        seen = (drawn[:, row, None] == y).all(-1).double()
        assert bool((seen.sum(1) == 1).all())
        error = (seen.mean(0) - p).abs() / (p * (1 - p) / n).sqrt()
        assert float(error.max()) < 4.5
    again = structure._sample(problem, 5, 0.5, torch.Generator().manual_seed(1))
    assert torch.equal(again, structure._sample(problem, 5, 0.5, torch.Generator().manual_seed(1)))
    assert not torch.equal(
        structure._sample(problem, 50, 0.5, rng), structure._sample(problem, 50, 0.5, rng)
    )


@pytest.mark.parametrize("omega", ["entropy", "l2"])
def test_a_training_step_on_a_long_chain(omega, rng):
    k, positions = 50, 1000
    scores = requiring(make(rng, (2,), positions, k, "shared", True, True))
    structure = Sequence(k)
    problem = structure._problem("test", scores, torch.tensor([1000, 700]))
    value = structure._smoothed_max(problem, omega, 1.0)
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
        other = structure._problem("test", moved, torch.tensor([1000, 700]))
        return other.means(structure._smoothed_argmax(other, omega, 1.0)).emissions

    slope = (shifted(1) - shifted(-1)).detach() / (2 * step)
    if omega == "entropy":
        torch.testing.assert_close(turned[0], slope, atol=1e-6, rtol=1e-4)
    assert all(bool(t.isfinite().all()) for t in turned)


def test_shapes_dtypes_and_batches(rng, backend):
    structure = Sequence(3)
    scores = make(rng, (2, 3), 4, 3, "each", True, True)
    half = SequenceScores(*(x.float() for x in scores))
    problem = structure._problem("test", half)
    means = problem.means(structure._smoothed_argmax(problem, "entropy", 1.0))
    assert means.emissions.shape == (2, 3, 4, 3)
    assert means.transitions.shape == (2, 3, 3, 3, 3)
    assert means.start.shape == means.end.shape == (2, 3, 3)
    assert means.emissions.dtype == torch.float32
    torch.testing.assert_close(means.transitions.sum(-1), means.emissions[:, :, :-1])
    torch.testing.assert_close(means.transitions.sum(-2), means.emissions[:, :, 1:])
    flat = SequenceScores(scores.emissions[0, 0], scores.transitions[0, 0], scores.start)
    best = structure.argmax(flat)
    assert best.emissions.shape == (4, 3) and best.start.shape == (3,) and best.end is None
    shared = structure.argmax(scores._replace(transitions=torch.zeros(3, 3)))
    assert shared.transitions.shape == (2, 3, 3, 3)
    assert bool((shared.transitions.sum((-1, -2)) == 3).all())
    empty = structure._problem("test", torch.empty(0, 4, 3))
    assert structure._smoothed_max(empty, "entropy", 1.0).shape == (0,)
    assert structure.argmax(torch.empty(0, 4, 3)).shape == (0, 4, 3)
    assert structure._k_best(empty, 2)[1].shape == (0, 2)


def test_score_of_a_target(rng):
    scores = make(rng, (2,), 3, 4, "shared", True, True)
    target = torch.tensor([[1, 0, 3], [2, 2, -7]])
    got = Sequence(4).score(scores, target, lengths=torch.tensor([3, 2]))
    e, a, s, f = scores
    first = e[0, 0, 1] + e[0, 1, 0] + e[0, 2, 3] + a[1, 0] + a[0, 3] + s[1] + f[0, 3]
    second = e[1, 0, 2] + e[1, 1, 2] + a[2, 2] + s[2] + f[1, 2]
    torch.testing.assert_close(got, torch.stack([first, second]))


WRONG = [
    (
        lambda: Sequence(0),
        "Sequence: `n_tags` must be at least 1; got 0.",
    ),
    (
        lambda: Sequence(3).argmax(torch.zeros(4, 2)),
        "Sequence.argmax: expected emissions of shape (*batch, T, 3) with T at least 1, for "
        "Sequence(3), but got (4, 2).",
    ),
    (
        lambda: Sequence(2).argmax((torch.zeros(4, 2), torch.zeros(2, 2))),
        "Sequence.argmax: expected emissions (a tensor) or a SequenceScores, but got tuple; write "
        "SequenceScores(emissions, transitions, ...).",
    ),
    (
        lambda: Sequence(2).argmax(SequenceScores(torch.zeros(5, 4, 2), torch.zeros(3, 2, 2))),
        "Sequence.argmax: expected `transitions` to be a floating tensor of shape (2, 2) or "
        "(5, 2, 2) or (5, 3, 2, 2), but got (3, 2, 2) of torch.float32.",
    ),
    (
        lambda: Sequence(2).argmax(SequenceScores(torch.zeros(4, 2), start=torch.zeros(3))),
        "Sequence.argmax: expected `start` to be a floating tensor of shape (2,), but got (3,) of "
        "torch.float32.",
    ),
    (
        lambda: Sequence(2).argmax(torch.full((3, 4, 2), math.nan)),
        "Sequence.argmax: expected finite scores (or -inf, a mask), but instance 0 of the batch "
        "has NaN.",
    ),
    (
        lambda: Sequence(2).argmax(torch.zeros(4, 2), mask=torch.zeros(4, 2, dtype=torch.bool)),
        "Sequence: instance 0 of the batch has no structure with a finite score; too much is "
        "masked.",
    ),
    (
        lambda: Sequence(2).argmax(torch.zeros(3, 4, 2), lengths=torch.tensor([4, 5, 1])),
        "Sequence.argmax: expected `lengths` between 1 and 4, but got 5.",
    ),
    (
        lambda: Sequence(2).score(torch.zeros(3, 2), torch.tensor([0, 2, 0])),
        "Sequence.score: expected tags from 0 to 1 in `target`, but one is out of range; only "
        "positions behind the length may hold anything.",
    ),
    (
        lambda: Sequence(2).score(torch.zeros(3, 2), torch.tensor([0.0, 1.0, 0.0])),
        "Sequence.score: expected `target` to hold tag indices, an integer tensor of shape (3,), "
        "but got (3,) of torch.float32.",
    ),
    (
        lambda: Sequence(2)._smoothed_max(
            Sequence(2)._problem("test", torch.zeros(3, 2)), "tsallis", 1.0
        ),
        "Sequence: there is no dynamic program for the smoothing 'tsallis'; use SparseMAP, which "
        "needs only the argmax.",
    ),
]


@pytest.mark.parametrize("call, sentence", WRONG)
def test_wrong_arguments(call, sentence):
    with pytest.raises(FenchelError) as error:
        call()
    assert str(error.value) == sentence


def test_nothing_is_computed_where_everything_is_masked(backend):
    forbidden = SequenceScores(
        torch.zeros(2, 3, 2), torch.tensor([[0.0, 0.0], [0.0, 0.0]]), start=torch.zeros(2)
    )
    mask = torch.ones(2, 3, 2, dtype=torch.bool)
    mask[1, 1] = False
    structure = Sequence(2)
    problem = structure._problem("test", forbidden, None, mask)
    for call in (
        lambda: structure._best_parts(problem, problem.scores),
        lambda: structure._smoothed_max(problem, "entropy", 1.0),
        lambda: structure._smoothed_max(problem, "l2", 1.0),
        lambda: structure._smoothed_argmax(problem, "l2", 1.0),
        lambda: structure._sample(problem, 3, 1.0, None),
        lambda: structure._k_best(problem, 3),
    ):
        with pytest.raises(FenchelError, match="instance 1 of the batch has no structure"):
            call()
