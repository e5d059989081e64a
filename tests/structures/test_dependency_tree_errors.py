"""What DependencyTree refuses, word for word."""

import itertools
import math

import pytest
import torch

from fenchel._checks import FenchelError
from fenchel.structures import DependencyTree

TREES = [DependencyTree(*options) for options in itertools.product((True, False), (False, True))]
trees = pytest.mark.parametrize("tree", TREES, ids=repr)


def log_partition(tree, scores):
    return tree.smoothed_max(tree.problem("test", scores), "entropy", 1.0)


def marginals(tree, scores):
    return tree.smoothed_argmax(tree.problem("test", scores), "entropy", 1.0)


def check(message, call):
    with pytest.raises(FenchelError) as error:
        call()
    assert str(error.value) == message


def test_shape():
    for shape in [(4,), (3, 3), (0, 1)]:
        check(
            "DependencyTree.argmax: expected `scores` of shape (*batch, n, n + 1), a row a "
            f"word and a column a head with the root first, but got {shape}.",
            lambda shape=shape: DependencyTree().argmax(torch.zeros(shape)),
        )


def test_arguments():
    check("DependencyTree: `single_root` must be True or False; got 1.", lambda: DependencyTree(1))
    check(
        "DependencyTree: `projective` must be True or False; got 'no'.",
        lambda: DependencyTree(True, "no"),
    )


def test_nan():
    scores = torch.zeros(2, 2, 3)
    scores[1, 0, 0] = math.nan
    check(
        "DependencyTree.argmax: expected finite scores (or -inf, a mask), but instance 1 of "
        "the batch has NaN.",
        lambda: DependencyTree().argmax(scores),
    )


@trees
@pytest.mark.parametrize("scale", [1e17, 1e20, 1e300, 3e307, 1e308])
def test_scores_too_far_apart_for_a_sum(tree, scale):
    # No word gets its best head: they are heads of each other.
    scores = torch.tensor([[[0.0, 0.0, 1.0], [-0.5, 1.0, 0.0]]], dtype=torch.float64)
    message = (
        f"{tree!r}: expected scores up to 1e+15 for a sum over all trees (far lower ones only "
        "where no tree needs them), but instance 1 of the batch has others; use `fy.MAP` or a "
        "higher `gamma`."
    )
    batch = torch.cat((scores, scale * scores))
    check(message, lambda: marginals(tree, batch))
    check(message, lambda: log_partition(tree, batch))
    needed = torch.cat((scores, torch.tensor([[[-scale, 0.0, 1.0], [-scale, 1.0, 0.0]]]).double()))
    if scale < 1e300:  # from there on such a weight is 0, and there is no tree
        check(message, lambda: marginals(tree, needed))


@trees
@pytest.mark.parametrize("far", [1e6, 1e15, 1e18, 3.4e38, 1e300, 1.7e308])
def test_a_large_negative_number_masks_as_minus_infinity_does(tree, far, rng):
    scores = torch.randn(20, 6, 7, generator=rng, dtype=torch.float64)
    closed = torch.rand(20, 6, 7, generator=rng) < 0.5
    closed[:, torch.arange(6), torch.arange(6)] = False  # a chain is left
    for call in (marginals, log_partition):
        if call is log_partition and tree.single_root and not tree.projective:
            continue  # its root has a scale of its own, which is rounded at the size of the mask
        got = call(tree, scores.masked_fill(closed, -far))
        expected = call(tree, scores.masked_fill(closed, -math.inf))
        torch.testing.assert_close(got, expected, atol=1e-13, rtol=1e-13)


def test_word_without_a_head():
    scores = torch.zeros(2, 3, 4)
    scores[1, 2, :3] = -math.inf
    check(
        "DependencyTree.argmax: expected a finite score for at least one head of every word, "
        "but word 2 of instance 1 of the batch has none.",
        lambda: DependencyTree().argmax(scores),
    )


@trees
def test_only_cycles(tree, backend):
    scores = torch.zeros(2, 2, 3)
    scores[1, :, 0] = -math.inf
    message = (
        f"{tree!r}: instance 1 of the batch has no tree with a finite score; too much is masked."
    )
    check(message, lambda: tree.argmax(scores))
    check(message, lambda: log_partition(tree, scores))
    check(message, lambda: marginals(tree, scores))


@pytest.mark.parametrize("projective", [False, True])
def test_two_words_that_only_know_the_root(projective, backend):
    scores = torch.full((2, 3), -math.inf)
    scores[:, 0] = 0
    tree = DependencyTree(True, projective)
    with pytest.raises(FenchelError, match="no tree"):
        tree.argmax(scores)
    with pytest.raises(FenchelError, match="no tree"):
        log_partition(tree, scores)
    assert DependencyTree(False, projective).argmax(scores)[:, 0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("tree", "heads", "message"),
    [
        (DependencyTree(), [2, 1, 0], "one has a cycle"),
        (DependencyTree(), [1, 0, 2], "one has a cycle"),
        (DependencyTree(), [0, 0, 2], "one has several roots"),
        (DependencyTree(False, True), [3, 0, 0], "arcs of one cross"),
    ],
    ids=str,
)
def test_targets_that_are_no_trees(tree, heads, message):
    check(
        f"DependencyTree.score: expected `target` to hold trees of {tree!r}, but {message}.",
        lambda: tree.score(torch.zeros(3, 4), torch.tensor(heads)),
    )


def test_targets():
    scores, lengths = torch.zeros(2, 3, 4), torch.tensor([3, 2])
    tree = DependencyTree()
    check(
        "DependencyTree.score: expected heads between 0 (the root) and the number of words in "
        "`target`, but one is out of range.",
        lambda: tree.score(scores, torch.tensor([[0, 1, 2], [0, 3, 0]]), lengths=lengths),
    )
    for target, got in [
        (torch.zeros(2, 3), "(2, 3) of torch.float32"),
        (torch.zeros(2, 2).long(), "(2, 2) of torch.int64"),
        (7, "int"),
    ]:
        check(
            "DependencyTree.score: expected `target` to hold the head of every word (0 is the "
            f"root), an integer tensor of shape (2, 3), but got {got}.",
            lambda target=target: tree.score(scores, target),
        )


def test_smoothing():
    problem = DependencyTree().problem("test", torch.zeros(2, 3))
    for call in (DependencyTree().smoothed_max, DependencyTree().smoothed_argmax):
        with pytest.raises(FenchelError, match="no dynamic program for the smoothing 'l2'"):
            call(problem, "l2", 1.0)
