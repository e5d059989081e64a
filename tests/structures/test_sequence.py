"""Sequences against the enumeration of all of them."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from fenchel.structures import Sequence, SequenceScores
from fenchel.testing._truth import l2_max
from tests.structures.case import Refused, case, forbid, mask
from tests.structures.sequences import BLOCKS, make, members

LENGTHS = torch.tensor([3, 1, 2])


def l2_chain(problem, flat, at, gamma):
    """The smoothed maximum of instance ``at``, one tag at a time."""
    positions, k, kind, has_start, has_end = problem.layout
    squares = (0, 1, positions - 1)[kind]
    emissions, rest = flat[: positions * k].reshape(positions, k), flat[positions * k :]
    transitions, rest = rest[: squares * k * k].reshape(squares, k, k), rest[squares * k * k :]
    state = emissions[0] + (rest[:k] if has_start else 0.0)
    for t in range(1, int(problem.sizes[at, 0])):
        square = transitions[(0, 0, t - 1)[kind]] if kind else torch.zeros(k, k)
        into = [l2_max(state + square[:, j], gamma) for j in range(k)]
        state = emissions[t] + torch.stack(into)
    return l2_max(state + (rest[-k:] if has_end else 0.0), gamma)


tags = partial(case, recursion=l2_chain)
chain = partial(case, recursion=l2_chain, form=SequenceScores)

CASES = [
    tags("tags", Sequence(3), (2, 3, 3)),
    tags("tags-single", Sequence(2), (4, 2)),
    tags("tags-mask", Sequence(3), (2, 3, 3), mask=mask(2, 3, 3, off=[(0, 1, 2), (1, 0, 0)])),
    chain("chain", Sequence(2), (3, 4, 2), (2, 2), (2,), (2,)),
    chain("chain-single", Sequence(3), (3, 3), (3, 3), None, (3,)),
    chain("chain-1", Sequence(3), (2, 1, 3), (3, 3), (3,), (2, 3)),
    chain("chain-lengths", Sequence(2), (3, 3, 2), (2, 2), (2,), (3, 2), lengths=LENGTHS),
    chain("chain-item", Sequence(2), (2, 2, 3, 2), (2, 2, 2, 2), None, (2,)),
    chain("chain-each", Sequence(2), (3, 3, 2), (3, 2, 2, 2), (3, 2), lengths=LENGTHS),
    forbid(chain("chain-inf", Sequence(3), (2, 3, 3), (3, 3), None, None), 1, (0, 1), (2, 2)),
]
SOLVED = [
    chain("tag chain", Sequence(3), (2, 4, 3), None),
    chain("shared chain", Sequence(3), (2, 4, 3), (3, 3), (3,), (3,)),
    chain("each chain", Sequence(3), (2, 4, 3), (2, 3, 3, 3)),
]
FACES = [chain("sequence", Sequence(3), (1, 8, 3), (3, 3))]
REFUSED = [
    Refused(
        Sequence(3),
        torch.zeros(2, 3, 3),
        "to hold tag indices, an integer tensor of shape (2, 3)",
        (2, 3),
    )
]


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
        problem = structure.problem("test", scores, lengths, mask)
        best = structure.argmax(scores, lengths=lengths, mask=mask)
        assert best.emissions.shape == scores.emissions.shape
        parts = structure.best_parts(problem, problem.scores)
        value = structure.smoothed_max(problem, "entropy", 0.7)
        means = structure.smoothed_argmax(problem, "entropy", 0.7)
        top, top_scores = structure.k_best_parts(problem, 4)
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
    problem = structure.problem("test", scores, lengths)
    value = structure.smoothed_max(problem, "l2", gamma)
    means = problem.means(structure.smoothed_argmax(problem, "l2", gamma)).emissions
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


@pytest.mark.parametrize("scale", [1e4, 1e-4])
@pytest.mark.parametrize("omega", ["entropy", "l2"])
def test_large_and_small_scores(scale, omega, rng, backend):
    structure = Sequence(3)
    for transitions in ("shared", "each"):
        scores = make(rng, (2,), 5, 3, transitions, True, True, scale=scale)
        problem = structure.problem("test", scores)
        value = structure.smoothed_max(problem, omega, 1.0)
        means = structure.smoothed_argmax(problem, omega, 1.0)
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
    problem = structure.problem("test", scores)
    best = problem.indicator(structure.best_parts(problem, problem.scores))
    for omega in ("entropy", "l2"):
        cold = structure.smoothed_argmax(problem, omega, 1e-4)
        torch.testing.assert_close(cold, best)
        hot = problem.means(structure.smoothed_argmax(problem, omega, 1e9)).emissions
        torch.testing.assert_close(hot, torch.full_like(hot, 1 / 3), atol=1e-6, rtol=0)


def test_ties_take_the_lowest_tags(backend):
    zeros = SequenceScores(torch.zeros(4, 3), torch.zeros(3, 3))
    best = Sequence(3).argmax(zeros)
    assert torch.equal(best.emissions, torch.tensor([[1.0, 0, 0]] * 4))
    count = Sequence(3).smoothed_max(Sequence(3).problem("test", zeros), "entropy", 1.0)
    assert float(count) == pytest.approx(4 * math.log(3))


@pytest.mark.parametrize("transitions", [None, "shared", "each"])
def test_samples_have_the_right_frequencies(transitions, rng, backend):
    structure, n = Sequence(2), 4000 if backend == "native" else 600
    scores = make(rng, (2,), 3, 2, transitions, True, True)
    problem = structure.problem("test", scores, torch.tensor([3, 2]))
    parts = structure.sample_parts(problem, n, 0.5, rng)
    assert parts.shape[:2] == (n, 2)
    drawn = torch.stack([problem.indicator(p) for p in parts])
    for row in range(2):
        y, s = members(structure, problem, row)
        p = torch.softmax(s / 0.5, 0)
        seen = (drawn[:, row, None] == y).all(-1).double()
        assert bool((seen.sum(1) == 1).all())
        error = (seen.mean(0) - p).abs() / (p * (1 - p) / n).sqrt()
        assert float(error.max()) < 4.5
    again = structure.sample_parts(problem, 5, 0.5, torch.Generator().manual_seed(1))
    assert torch.equal(
        again, structure.sample_parts(problem, 5, 0.5, torch.Generator().manual_seed(1))
    )
    assert not torch.equal(
        structure.sample_parts(problem, 50, 0.5, rng), structure.sample_parts(problem, 50, 0.5, rng)
    )
