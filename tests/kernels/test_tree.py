"""Best trees and sums over trees: the core against the reference, and both against all trees."""

import functools
import itertools
import math
import time

import mpmath
import pytest
import torch

from fenchel import kernels
from fenchel.structures import DependencyTree
from tests.structures.members import members_of

KINDS = [(single, projective) for single in (0, 1) for projective in (False, True)]
kinds = pytest.mark.parametrize(("single", "projective"), KINDS, ids=lambda v: str(v))


def kind_of(projective):
    return "projective_tree" if projective else "tree"


def log_partition(projective, scores, layout, sizes):
    return kernels.smoothed(kind_of(projective), scores, layout, sizes, "entropy", 1.0, False)[0]


def marginals(projective, scores, layout, sizes, direction=None):
    """The marginals, or their derivative along a direction."""
    kind = kind_of(projective)
    if direction is None:
        return kernels.smoothed(kind, scores, layout, sizes, "entropy", 1.0, True)[1]
    return kernels.smoothed_product(kind, scores, direction, layout, sizes, "entropy", 1.0)


@functools.lru_cache
def members(n, single, projective):
    """All trees as parts (trees, n) and as counts (trees, parts)."""
    parts = torch.tensor(list(members_of(DependencyTree(bool(single), projective), n, n + 1)))
    counts = torch.zeros(len(parts), n * (n + 1), dtype=torch.float64)
    return parts, counts.scatter_(1, parts, 1.0)


def instances(n, count, rng, scale=1.0, forbidden=0.0, ties=False):
    scores = torch.randn(count, n, n + 1, generator=rng, dtype=torch.float64) * scale
    if ties:
        scores = scores.round()
    share = torch.rand(count, 1, 1, generator=rng) * forbidden
    scores[torch.rand(scores.shape, generator=rng) < share] = -math.inf
    scores[:, torch.arange(n), torch.arange(n) + 1] = math.nan  # must not be looked at
    return scores.reshape(count, -1)


def best(scores, single, projective, n, sizes=None):
    sizes = torch.full((len(scores), 1), n) if sizes is None else sizes
    return kernels.best_parts(kind_of(projective), scores, (n, single), sizes)


def is_projective(heads):
    """By the other definition: every word between a head and its dependent is below the head."""
    for word, head in enumerate(heads, 1):
        for between in range(min(word, head) + 1, max(word, head)):
            above = between
            while above not in (0, head):
                above = heads[above - 1]
            if above != head:
                return False
    return True


@kinds
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("ties", [False, True])
def test_best_of_all_trees(single, projective, backend, n, ties, rng):
    count = 500 if backend == "native" else 60
    scores = instances(n, count, rng, forbidden=0.8, ties=ties)
    parts, _ = members(n, single, projective)
    truth = scores[:, parts].sum(2).amax(1)
    found = best(scores, single, projective, n)
    assert torch.equal(found, best(scores, single, projective, n))
    none = found[:, 0] == -2
    assert torch.equal(none, truth == -math.inf)
    assert 0 < none.sum() < count
    assert {tuple(sorted(row)) for row in found[~none].tolist()} <= set(map(tuple, parts.tolist()))
    got = scores.gather(1, found.clamp(min=0)).sum(1)
    torch.testing.assert_close(got[~none], truth[~none], rtol=0, atol=1e-12)


@kinds
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_sums_over_all_trees(single, projective, backend, n, scale, rng):
    count = 100 if backend == "native" else 20
    scores = instances(n, count, rng, scale=scale, forbidden=0.6)
    direction = torch.randn(scores.shape, generator=rng, dtype=torch.float64)
    parts, counts = members(n, single, projective)
    values = scores[:, parts].sum(2)
    truth = values.logsumexp(1)
    there = truth > -math.inf
    p = torch.where(there.unsqueeze(1), values.softmax(1), 0.0)
    moved = direction @ counts.T
    slope = (p * (moved - (p * moved).sum(1, keepdim=True))) @ counts
    sizes = torch.full((count, 1), n)
    value = log_partition(projective, scores, (n, single), sizes)
    mean = marginals(projective, scores, (n, single), sizes)
    change = marginals(projective, scores, (n, single), sizes, direction)
    assert torch.equal(value > -math.inf, there)
    atol = 1e-15 * n * max(scale, 10)  # sums of scores of this size are not known better
    torch.testing.assert_close(value[there], truth[there], rtol=1e-14, atol=atol)
    torch.testing.assert_close(mean, p @ counts, rtol=0, atol=atol)
    torch.testing.assert_close(change, slope, rtol=0, atol=10 * atol)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_projective_by_the_other_definition(n):
    for single in (False, True):
        plain = members_of(DependencyTree(single), n, n + 1)
        heads = [tuple(part % (n + 1) for part in parts) for parts in plain]
        projective = members_of(DependencyTree(single, True), n, n + 1)
        found = {tuple(part % (n + 1) for part in parts) for parts in projective}
        assert found == {tree for tree in heads if is_projective(tree)}


def exact_marginals(scores, n, single):
    """By determinants with and without the arc, in many digits: nothing that the core does."""
    weight = [[mpmath.exp(mpmath.mpf(float(scores[i, h]))) for h in range(n + 1)] for i in range(n)]

    def total(weight):
        def laplacian(words, root):
            matrix = mpmath.matrix(len(words), len(words))
            for a, i in enumerate(words):
                for b, h in enumerate(words):
                    if a != b:
                        matrix[a, b] = -weight[i][h + 1]
                inside = [weight[i][h + 1] for h in words if h != i]
                matrix[a, a] = mpmath.fsum(inside) + root(i)
            return mpmath.det(matrix) if words else mpmath.mpf(1)

        words = list(range(n))
        if not single:
            return laplacian(words, lambda i: weight[i][0])
        return mpmath.fsum(
            weight[r][0] * laplacian([i for i in words if i != r], lambda i, r=r: weight[i][r + 1])
            for r in words
        )

    whole = total(weight)
    mean = torch.zeros(n, n + 1, dtype=torch.float64)
    for i, h in itertools.product(range(n), range(n + 1)):
        if h == i + 1:
            continue
        without = [list(row) for row in weight]
        without[i] = [mpmath.mpf(0)] * (n + 1)
        without[i][h] = weight[i][h]
        mean[i, h] = float(total(without) / whole)
    return float(mpmath.log(whole)), mean


@pytest.mark.parametrize("single", [0, 1])
@pytest.mark.parametrize("case", ["x30-12", "x1000", "cycle"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_marginal_to_its_last_digits(single, case, seed):
    # The determinants of the truth cancel: 400 digits are too few for "x1000".
    n, digits = (4, 3000) if case == "x1000" else (5, 300)
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, n + 1, generator=rng, dtype=torch.float64)
    if case == "x30-12":
        scores = scores * 30 - 12
    elif case == "x1000":
        scores = (scores * 1000).round() / 4
    else:  # two words that choose each other with e^40 over everything else
        scores[0, 2] += 40
        scores[1, 1] += 40
    with mpmath.workdps(digits):
        value, mean = exact_marginals(scores, n, single)
    flat, sizes = scores.reshape(1, -1), torch.tensor([[n]])
    got = marginals(False, flat, (n, single), sizes).reshape(n, n + 1)
    assert float(log_partition(False, flat, (n, single), sizes)) == pytest.approx(value, rel=1e-15)
    torch.testing.assert_close(got, mean, rtol=1e-13, atol=1e-300)


@kinds
def test_larger_sentences_agree_with_the_reference(single, projective, rng):
    n = 9 if projective else 16
    scores = instances(n, 4, rng, scale=3.0, forbidden=0.5)
    sizes = torch.tensor([[n], [n - 1], [n // 2], [1]])
    direction = torch.randn(scores.shape, generator=rng, dtype=torch.float64)
    answers = {}
    for backend in ("native", "reference"):
        with kernels.use_backend(backend):
            answers[backend] = (
                log_partition(projective, scores, (n, single), sizes),
                marginals(projective, scores, (n, single), sizes),
                marginals(projective, scores, (n, single), sizes, direction),
            )
            found = best(scores, single, projective, n, sizes)
        there = found[:, 0] >= 0
        assert bool(there.any())
        taken = torch.where(found >= 0, scores.gather(1, found.clamp(min=0)), 0.0).sum(1)
        answers[backend] += (torch.where(there, taken, -math.inf),)
    for one, other in zip(answers["native"], answers["reference"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-11)


@kinds
def test_plain_and_scaled_numbers_agree(single, projective, rng):
    """Forbidding costs nothing here, but makes the core choose numbers with their own exponent."""
    n, far = 8, 1000.0
    scores = instances(n, 5, rng)
    sizes = torch.full((5, 1), n)
    plain = marginals(projective, scores, (n, single), sizes)
    wide = scores.reshape(5, n, n + 1).clone()
    wide[:, 0, 2] = -far  # with weight e^-1000: next to nothing, but not nothing
    scaled = marginals(projective, wide.reshape(5, -1), (n, single), sizes)
    gone = scores.reshape(5, n, n + 1).clone()
    gone[:, 0, 2] = -math.inf
    without = marginals(projective, gone.reshape(5, -1), (n, single), sizes)
    torch.testing.assert_close(scaled, without, rtol=1e-13, atol=1e-14)
    assert not torch.allclose(plain, without, atol=1e-3)


@pytest.mark.parametrize("far", [1e6, 1e12, 1e200, 1e300])
@kinds
def test_scores_of_any_size(single, projective, far):
    scores = torch.tensor([[0.0, 0.0, far], [0.0, far, 0.0]], dtype=torch.float64).reshape(1, 6)
    sizes = torch.tensor([[2]])
    value = log_partition(projective, scores, (2, single), sizes)
    assert float(value) == pytest.approx(far + math.log(2), rel=1e-15)
    mean = marginals(projective, scores, (2, single), sizes)
    half = torch.tensor([[0.5, 0.0, 0.5, 0.5, 0.5, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(mean, half, rtol=1e-14, atol=1e-14)


def test_hundred_words_are_fast(rng):
    """A training step of 16 sentences: generous, for a machine that is busy."""
    n = 100
    scores = instances(n, 16, rng)
    sizes = torch.full((16, 1), n)
    start = time.process_time()
    best(scores, 1, False, n)
    log_partition(False, scores, (n, 1), sizes)
    mean = marginals(False, scores, (n, 1), sizes)
    marginals(False, scores, (n, 1), sizes, scores)
    assert time.process_time() - start < 2.0
    rows = mean.reshape(16, n, n + 1)
    torch.testing.assert_close(
        rows.sum(2), torch.ones(16, n, dtype=torch.float64), rtol=1e-13, atol=0
    )
    torch.testing.assert_close(
        rows[..., 0].sum(1), torch.ones(16, dtype=torch.float64), rtol=1e-12, atol=0
    )
