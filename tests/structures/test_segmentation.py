"""Segmentations: counts in exact integers, the chain at L = 1, targets, and what is refused."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

import fenchel as fy
from fenchel.structures import Segmentation, SegmentScores
from fenchel.testing._truth import l2_max
from tests.structures.case import Refused, case, forbid, mask, refuses, regularizers

LENGTHS = torch.tensor([3, 1, 2])


def l2_segments(problem, flat, at, gamma):
    """The smoothed maximum of instance ``at``, one segment and label before it at a time."""
    positions, longest, labels, has_transitions = problem.layout
    cut = positions * longest * labels
    segments = flat[:cut].reshape(positions, longest, labels)
    pairs = flat[cut:].reshape(labels, labels) if has_transitions else torch.zeros(labels, labels)
    length, best = int(problem.sizes[at]), {}
    for end in range(1, length + 1):
        for label in range(labels):
            ways = []
            for start in range(max(0, end - longest), end):
                own = segments[start, end - start - 1, label]
                before = [best[start, i] + pairs[i, label] for i in range(labels)] if start else [0]
                ways += [own + x for x in before]
            best[end, label] = ways[0] if end == 1 else l2_max(torch.stack(ways), gamma)
    return l2_max(torch.stack([best[length, i] for i in range(labels)]), gamma)


segments = partial(case, recursion=l2_segments)
joined = partial(case, recursion=l2_segments, form=SegmentScores)
TWO, THREE = Segmentation(2, max_length=2), Segmentation(2, max_length=3)

CASES = [
    segments("segments", TWO, (2, 3, 2, 2)),
    segments("segments-single", THREE, (3, 3, 2)),
    segments("segments-1", TWO, (2, 1, 2, 2)),
    segments("segments-lengths", THREE, (3, 3, 3, 2), lengths=LENGTHS),
    segments("segments-mask", TWO, (2, 3, 2, 2), mask=mask(2, 3, 2, 2, off=[(0, 1, 0, 1)])),
    segments("segments-axes", Segmentation(1, 2), (2, 1, 4, 2, 1)),
    joined("joined", TWO, (2, 3, 2, 2), (2, 2)),
    joined("joined-item", TWO, (2, 3, 2, 2), (2, 2, 2)),
    joined("joined-lengths", TWO, (3, 3, 2, 2), (3, 2, 2), lengths=LENGTHS),
    forbid(joined("joined-inf", THREE, (2, 3, 3, 2), (2, 2)), 1, (0, 1)),
]
SOLVED = [
    segments("cuts", THREE, (2, 4, 3, 2)),
    joined("joined cuts", TWO, (2, 4, 2, 2), (2, 2)),
]
FACES = [joined("segmentation-7", Segmentation(3, 3), (1, 7, 3, 3), (3, 3))]
REFUSED = [
    Refused(
        THREE,
        torch.zeros(2, 3, 3, 2),
        "to hold the label of each segment where it begins and -1 elsewhere, an integer tensor of "
        "shape (2, 3)",
        (2, 3),
    )
]


def count(positions, labels, longest):
    """How many segmentations there are, in integers of any size."""
    ways = [1]
    for end in range(1, positions + 1):
        ways.append(labels * sum(ways[max(0, end - longest) : end]))
    return ways[-1]


@pytest.mark.parametrize(
    ("positions", "labels", "longest", "wanted"),
    [(3, 2, 3, 18), (4, 2, 2, 44), (5, 3, 3, 747), (20, 5, 4, 3_015_147_077_190_625)],
)
def test_counts(positions, labels, longest, wanted, backend):
    assert count(positions, labels, longest) == wanted
    structure = Segmentation(labels, longest)
    zeros = torch.zeros(positions, longest, labels, dtype=torch.float64)
    for scores in (zeros, SegmentScores(zeros, torch.zeros(labels, labels).double())):
        value = float(fy.Marginals(structure).conjugate(scores))
        assert value == pytest.approx(math.log(wanted), abs=1e-12)
    if wanted < 1000:
        members = list(structure.enumerate(structure.problem("test", zeros)))
        assert len(set(members)) == len(members) == wanted


@pytest.mark.parametrize("transitions", [None, "shared", "item"])
@pytest.mark.parametrize("padded", [False, True])
def test_segments_of_one_position_are_a_chain(transitions, padded, rng, backend):
    emissions = torch.randn(3, 6, 4, generator=rng, dtype=torch.float64)
    shape = {None: None, "shared": (4, 4), "item": (3, 4, 4)}[transitions]
    square = None if shape is None else torch.randn(shape, generator=rng, dtype=torch.float64)
    lengths = torch.tensor([6, 1, 3]) if padded else None
    chain, cut = fy.Sequence(4), Segmentation(4, max_length=1)
    tags = torch.randint(4, (3, 6), generator=rng)
    for make in (
        fy.MAP,
        lambda s: fy.Marginals(s, 0.7),
        lambda s: fy.SparseMAP(s, 0.5),
        lambda s: fy.SmoothedDP(s, "l2", 0.6),
    ):
        numbers = []
        for structure, first in ((chain, emissions), (cut, emissions.unsqueeze(2))):
            leaf = first.clone().requires_grad_()
            form = fy.SequenceScores if structure is chain else SegmentScores
            scores, omega = form(leaf, square), make(structure)
            mean = omega.predict(scores, lengths=lengths)
            value = omega.conjugate(scores, lengths=lengths)
            loss = omega.loss(scores, tags, lengths=lengths, cost=0.5)
            (grad,) = torch.autograd.grad(loss.sum() + value.square().sum(), leaf)
            pairs = [] if square is None else [mean.transitions]
            numbers.append([mean[0].reshape(3, 6, 4), *pairs, value, loss, grad.reshape(3, 6, 4)])
        for one, other in zip(*numbers, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_segment_never_crosses_the_end_of_its_instance(backend):
    scores = torch.zeros(2, 5, 3, 2, dtype=torch.float64)
    scores[:, :, 2] = 100.0  # long segments are what everyone wants
    lengths = torch.tensor([5, 4])
    for omega in regularizers(Segmentation(2, 3)):
        mean = omega.predict(scores, lengths=lengths)
        for row, length in enumerate(lengths.tolist()):
            start, size = torch.arange(5).unsqueeze(1), torch.arange(1, 4)
            beyond = mean[row][start + size > length]
            assert (beyond == 0).all()
            covered = sum(
                mean[row, t, s - 1].sum() * (t <= x < t + s)
                for t in range(5)
                for s in range(1, 4)
                for x in [2]
            )
            torch.testing.assert_close(covered, torch.ones_like(covered))


def test_long_segments_and_many_labels_against_brute_force(rng, backend):
    structure = Segmentation(3, 4)
    for _ in range(20):
        scores = SegmentScores(
            torch.randn(2, 5, 4, 3, generator=rng, dtype=torch.float64).mul(2).round(),  # ties
            torch.randn(3, 3, generator=rng, dtype=torch.float64).round(),
        )
        problem = structure.problem("test", scores)
        best = problem.score(structure.best_parts(problem, problem.scores))
        for row in range(2):
            values = [
                sum(float(problem.scores[row, p]) for p in parts)
                for parts in structure.enumerate(problem, row)
            ]
            assert float(best[row]) == max(values)


def test_both_oracles_break_ties_alike():
    scores = torch.zeros(1, 5, 3, 2, dtype=torch.float64)
    answers = []
    for name in ("native", "reference"):
        if name == "native" and fy.backends().active != "native":
            pytest.skip("no native core here")
        with fy.use_backend(name):
            answers.append(Segmentation(2, 3).argmax(scores))
    assert torch.equal(*answers)
    assert answers[0][0, :, 0, 0].tolist() == [1] * 5  # the shortest segments, the lowest label


def test_targets(rng):
    structure, scores = Segmentation(3, 2), torch.zeros(5, 2, 3, dtype=torch.float64)
    target = torch.tensor([2, -1, 0, 1, -1])
    parts = structure.target_parts("test", structure.problem("test", scores), target)
    scores.reshape(-1)[parts[parts >= 0]] = 1.0
    assert scores.nonzero().tolist() == [[0, 1, 2], [2, 0, 0], [3, 1, 1]]
    assert float(structure.score(scores, target)) == 3
    longer = torch.tensor([2, -1, 0, 1, 7])  # behind the length anything may stand
    assert float(structure.score(scores, longer, lengths=torch.tensor(4))) == 2


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ([-1, 0, 0, -1], "[-1, 0, 0, -1]"),  # nothing begins at 0
        ([0, -1, -1, 0], "[0, -1, -1, 0]"),  # too long
        ([0, 0, -1, -1], "[0, 0, -1, -1]"),  # too long, at the end
        ([0, 2, 0, 0], "[0, 2, 0, 0]"),  # no such label
        ([0, -2, 0, 0], "[0, -2, 0, 0]"),
    ],
)
def test_targets_that_are_none(target, shown):
    for omega in regularizers(TWO):
        refuses(
            f"{type(omega).__name__}.loss: expected segments of up to 2 positions in `target`, the "
            "first one at position 0, with labels from 0 to 1 where they begin and -1 elsewhere, "
            f"but instance 0 of the batch has {shown}.",
            omega.loss,
            torch.zeros(4, 2, 2),
            torch.tensor(target),
        )


def test_what_is_refused():
    zeros = torch.zeros
    for name, make in (
        ("n_labels", lambda x: Segmentation(x, 2)),
        ("max_length", lambda x: Segmentation(2, x)),
    ):
        refuses(f"Segmentation: `{name}` must be at least 1; got 0.", make, 0)
        refuses(f"Segmentation: expected `{name}` to be an int, but got 1.5.", make, 1.5)
    omega = fy.SparseMAP(TWO)
    for shape in ((3, 2, 3), (3, 3, 2), (2, 2), (0, 2, 2)):
        refuses(
            "SparseMAP.predict: expected segments of shape (*batch, T, 2, 2) with T at least 1, "
            f"for Segmentation(2, max_length=2), but got {shape}.",
            omega.predict,
            zeros(shape),
        )
    refuses(
        "SparseMAP.predict: expected segments (a tensor) or a SegmentScores, but got tuple; write "
        "SegmentScores(segments, transitions).",
        omega.predict,
        (zeros(3, 2, 2), zeros(2, 2)),
    )
    for wrong, got in (
        (zeros(3, 3), "(3, 3) of torch.float32"),
        (zeros(2, 2).long(), "(2, 2) of torch.int64"),
        ([0], "list"),
    ):
        refuses(
            "SparseMAP.predict: expected `transitions` to be a floating tensor of shape (2, 2) or "
            f"(5, 2, 2), but got {got}.",
            omega.predict,
            SegmentScores(zeros(5, 3, 2, 2), wrong),
        )


def test_nothing_is_left(backend):
    scores = torch.zeros(2, 3, 2, 2)
    scores[1, 0] = -math.inf  # no segment may begin at the start
    for omega in regularizers(TWO):
        for method in (omega.predict, omega.conjugate):
            refuses(
                "Segmentation: instance 1 of the batch has no structure with a finite score; too "
                "much is masked.",
                method,
                scores,
            )


def test_a_layer_of_segments(rng):
    layer = fy.nn.StructuredLayer(TWO, "marginals")
    scores = torch.randn(2, 4, 2, 2, generator=rng, requires_grad=True)
    target = torch.tensor([[0, -1, 1, 1], [1, 0, -1, 0]])
    layer.loss(scores, target).backward()
    assert scores.grad.abs().sum() > 0 and layer(scores).shape == scores.shape


def test_repr_is_the_call():
    assert repr(eval("Segmentation(2, max_length=3)")) == repr(THREE)
