"""What is wrong is refused with a sentence, before anything is computed."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from fenchel import FenchelError
from fenchel.structures import SequenceScores
from tests.structures.case import refuses, regularizers
from tests.structures.registry import every_refused

pytestmark = pytest.mark.usefixtures("backend")

T, Z = torch.tensor, torch.zeros
METHODS = ("predict", "conjugate")


@every_refused
@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "+inf")])
def test_values(refused, value, word):
    structure, scores = refused.structure, refused.scores.clone()
    scores[1].reshape(-1)[0] = value
    for omega in regularizers(structure):
        for method in METHODS:
            refuses(
                f"{type(omega).__name__}.{method}: expected finite scores (or -inf, a mask), but "
                f"instance 1 of the batch has {word}.",
                getattr(omega, method),
                scores,
            )


@every_refused
def test_lengths(refused):
    structure, scores = refused.structure, refused.scores
    full = tuple(structure.problem("test", scores).sizes[0].tolist())
    shape, most = ((2,), full[0]) if len(full) == 1 else ((2, len(full)), full)
    for omega in regularizers(structure):
        name = f"{type(omega).__name__}.predict"
        for wrong in (0, -1, 9):
            lengths = torch.ones(shape, dtype=torch.int64)
            lengths[1] = wrong
            refuses(
                f"{name}: expected `lengths` between 1 and {most}, but got {wrong}.",
                omega.predict,
                scores,
                lengths=lengths,
            )
        for wrong, got in [
            (T([1]), "(1,) torch.int64"),
            (torch.ones(shape), f"{shape} torch.float32"),
            (torch.ones(shape) > 0, f"{shape} torch.bool"),
            ([1, 2], "list"),
        ]:
            refuses(
                f"{name}: expected `lengths` to be an integer tensor of shape {shape}, but got "
                f"{got}.",
                omega.predict,
                scores,
                lengths=wrong,
            )


@every_refused
def test_masks_and_scores(refused):
    structure, scores = refused.structure, refused.scores
    shape = tuple(scores.shape)
    for omega in regularizers(structure):
        name = f"{type(omega).__name__}.conjugate"
        call = omega.conjugate
        sentence = f"{name}: expected `mask` to be a boolean tensor (True = keep), but got "
        refuses(f"{sentence}torch.float32.", call, scores, mask=scores)
        refuses(f"{sentence}list.", call, scores, mask=[True])
        refuses(
            f"{name}: expected `mask` broadcastable to the shape of `scores` {shape}, but got "
            "(5, 7).",
            call,
            scores,
            mask=Z(5, 7) > 0,
        )
        refuses(
            f"{name}: expected `scores` of a floating dtype (float64, float32, float16 or "
            "bfloat16), but got torch.int64; convert with `scores.float()`.",
            call,
            scores.long(),
        )
        refuses(
            "structures: expected tensors with values, but got one on `meta`.",
            call,
            scores.to("meta"),
        )
        if not isinstance(structure, fy.Sequence):
            refuses(
                f"{name}: expected `scores` to be a torch.Tensor, but got list.",
                call,
                scores.tolist(),
            )


def test_sequence_scores():
    omega = fy.SparseMAP(fy.Sequence(3))
    refuses(
        "SparseMAP.predict: expected emissions (a tensor) or a SequenceScores, but got tuple; "
        "write SequenceScores(emissions, transitions, ...).",
        omega.predict,
        (Z(2, 3, 3), Z(3, 3)),
    )
    refuses(
        "SparseMAP.predict: expected `transitions` to be a floating tensor of shape (3, 3) or "
        "(2, 3, 3) or (2, 2, 3, 3), but got (3, 3) of torch.int64.",
        omega.predict,
        SequenceScores(Z(2, 3, 3), Z(3, 3).long()),
    )


def test_nothing_is_left():
    refuses(
        "MAP.predict: expected at least one item with a finite score in every instance, but "
        "instance 0 of the batch has fewer.",
        fy.MAP(fy.OneOf()).predict,
        Z(2, 3) - math.inf,
    )
    refuses(
        "SparseMAP.predict: expected at least 4 items with a finite score in every instance, but "
        "instance 0 of the batch has fewer.",
        fy.SparseMAP(fy.KSubsets(4)).predict,
        Z(3),
    )
    forbidden = torch.full((3, 3), -math.inf)
    rootless = Z(2, 3, 4)
    rootless[1, :, 0] = -math.inf
    headless = Z(2, 3, 4)
    headless[1, 2] = -math.inf
    narrow = Z(2, 3, 4)
    narrow[1, :, 2:] = -math.inf
    cut = Z(2, 3, 4)
    cut[1, 1] = -math.inf
    for structure, scores, sentence in [
        (
            fy.Sequence(3),
            SequenceScores(Z(2, 3, 3), forbidden),
            "Sequence: instance 0 of the batch has no structure with a finite score; too much is "
            "masked.",
        ),
        (
            fy.DependencyTree(),
            headless,
            "{name}: expected a finite score for at least one head of every word, but word 2 of "
            "instance 1 of the batch has none.",
        ),
        (
            fy.Assignment(),
            narrow,
            "Assignment: expected a finite score for every row of the shorter side in some "
            "one-to-one assignment, but instance 1 of the batch has none; mask fewer pairs.",
        ),
        (
            fy.Alignment(),
            cut,
            "Alignment: expected a path of finite scores from corner to corner, but instance 1 of "
            "the batch has none; mask fewer cells.",
        ),
        (
            fy.Alignment(band=0),
            Z(2, 3, 4),
            "Alignment: expected a path of finite scores from corner to corner, but instance 0 of "
            "the batch has none; mask fewer cells or widen the band of 0 (from 0.5 on it always "
            "holds a path).",
        ),
    ]:
        for omega in regularizers(structure):
            for method in METHODS:
                name = f"{type(omega).__name__}.{method}"
                refuses(sentence.format(name=name), getattr(omega, method), scores)
    for projective in (False, True):
        for omega in regularizers(fy.DependencyTree(projective=projective)):
            for method in METHODS:
                with pytest.raises(FenchelError, match=r"instance 1 .* finite score; too much"):
                    getattr(omega, method)(rootless)


@pytest.mark.parametrize(
    ("structure", "scores", "target", "sentence"),
    [
        (
            fy.DependencyTree(),
            Z(3, 4),
            [2, 1, 0],
            "expected `target` to hold trees of DependencyTree(single_root=True, "
            "projective=False), but one has a cycle.",
        ),
        (
            fy.DependencyTree(),
            Z(3, 4),
            [0, 0, 1],
            "expected `target` to hold trees of DependencyTree(single_root=True, "
            "projective=False), but one has several roots.",
        ),
        (
            fy.DependencyTree(False, True),
            Z(4, 5),
            [3, 0, 0, 2],
            "expected `target` to hold trees of DependencyTree(single_root=False, "
            "projective=True), but arcs of one cross.",
        ),
        (
            fy.DependencyTree(),
            Z(3, 4),
            [0, 4, 1],
            "expected heads between 0 (the root) and the number of words in `target`, but one is "
            "out of range.",
        ),
        (
            fy.Assignment(),
            Z(2, 3),
            [1, 1],
            "expected an assignment in `target`: 2 of the 2 rows with a column of their own below "
            "3, the other rows with -1; but instance 0 of the batch has [1, 1].",
        ),
        (
            fy.Alignment(),
            Z(2, 3),
            [[0, 0], [1, 2]],
            "expected a path from (0, 0) to (1, 2) by steps (1, 0), (0, 1) and (1, 1) in `target`, "
            "filled up with -1, but instance 0 of the batch is none.",
        ),
        (
            fy.Sequence(3),
            Z(2, 3),
            [0, 3],
            "expected tags from 0 to 2 in `target`, but one is out of range; only positions behind "
            "the length may hold anything.",
        ),
        (
            fy.KSubsets(2),
            Z(3),
            [1, 1],
            "expected 2 different items of each instance in `target`, but one is out of range or "
            "occurs twice.",
        ),
        (
            fy.OneOf(),
            Z(3),
            3,
            "expected one item of each instance in `target`, but one is out of range.",
        ),
    ],
)
def test_targets_that_are_not_structures(structure, scores, target, sentence):
    for omega in regularizers(structure):
        refuses(f"{type(omega).__name__}.loss: {sentence}", omega.loss, scores, T(target))


@every_refused
def test_no_torch_func_and_no_forward_mode(refused):
    """A tangent would be lost without a word."""
    structure, scores = refused.structure, refused.scores.double()
    said = (
        "structures: expected no torch.func and no forward mode, because their solvers read "
        "values; they take batches as they are, and torch.autograd has their gradients."
    )
    for omega in regularizers(structure):
        for method in METHODS:
            call = getattr(omega, method)
            refuses(said, torch.func.vmap(call), scores)
            refuses(said, torch.func.jvp, call, (scores,), (scores,))
            with torch.autograd.forward_ad.dual_level():
                refuses(said, call, torch.autograd.forward_ad.make_dual(scores, scores))
