"""Forms, shapes and wrong arguments of sequences."""

from __future__ import annotations

import math

import pytest
import torch

from fenchel import FenchelError
from fenchel.structures import Sequence, SequenceScores
from tests.structures.sequences import make


def test_shapes_dtypes_and_batches(rng, backend):
    structure = Sequence(3)
    scores = make(rng, (2, 3), 4, 3, "each", True, True)
    half = SequenceScores(*(x.float() for x in scores))
    problem = structure.problem("test", half)
    means = problem.means(structure.smoothed_argmax(problem, "entropy", 1.0))
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
    empty = structure.problem("test", torch.empty(0, 4, 3))
    assert structure.smoothed_max(empty, "entropy", 1.0).shape == (0,)
    assert structure.argmax(torch.empty(0, 4, 3)).shape == (0, 4, 3)
    assert structure.k_best_parts(empty, 2)[1].shape == (0, 2)


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
        lambda: Sequence(2).smoothed_max(
            Sequence(2).problem("test", torch.zeros(3, 2)), "tsallis", 1.0
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
    problem = structure.problem("test", forbidden, None, mask)
    for call in (
        lambda: structure.best_parts(problem, problem.scores),
        lambda: structure.smoothed_max(problem, "entropy", 1.0),
        lambda: structure.smoothed_max(problem, "l2", 1.0),
        lambda: structure.smoothed_argmax(problem, "l2", 1.0),
        lambda: structure.sample_parts(problem, 3, 1.0, None),
        lambda: structure.k_best_parts(problem, 3),
    ):
        with pytest.raises(FenchelError, match="instance 1 of the batch has no structure"):
            call()
