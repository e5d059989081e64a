"""The dynamic programs on chains: the native core against plain torch, number for number."""

from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch

import fenchel as fy
from fenchel import kernels

LAYOUTS = [
    (positions, k, kind, start, end)
    for positions, k in ((1, 1), (1, 3), (2, 2), (6, 5), (9, 8), (4, 17), (40, 33))
    for kind, (start, end) in itertools.product((0, 1, 2), ((0, 0), (1, 1)))
]

pytestmark = pytest.mark.skipif(fy.backends().active != "native", reason="no native core here")


def instances(rng, layout, count=3, scale=1.0, forbid=0.0):
    positions, k, kind, start, end = layout
    parts = positions * k + (0, k * k, (positions - 1) * k * k)[kind] + (start + end) * k
    scores = scale * torch.randn(count, parts, generator=rng, dtype=torch.float64)
    if forbid:
        scores[torch.rand(count, parts, generator=rng) < forbid] = -math.inf
    sizes = torch.randint(1, positions + 1, (count, 1), generator=rng)
    sizes[0] = positions
    return scores, sizes


def both(call):
    answers = []
    for backend in ("native", "reference"):
        with fy.use_backend(backend):
            answers.append(call())
    return answers


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("forbid", [0.0, 0.3])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_native_equals_reference(layout, forbid, rng):
    scores, sizes = instances(rng, layout, forbid=forbid)
    close(*both(lambda: kernels.best_parts("sequence", scores, layout, sizes)))
    direction = torch.randn(scores.shape, generator=rng, dtype=torch.float64)
    for omega in ("entropy", "l2"):
        here, there = both(
            partial(kernels.smoothed, "sequence", scores, layout, sizes, omega, 1.0, True)
        )
        close(here[0], there[0])
        close(here[1], there[1])
        alone, _ = kernels.smoothed("sequence", scores, layout, sizes, omega, 1.0, False)
        assert torch.equal(alone, here[0])
        close(
            *both(
                partial(
                    kernels.smoothed_product,
                    "sequence",
                    scores,
                    direction,
                    layout,
                    sizes,
                    omega,
                    1.0,
                )
            ),
            1e-11,
        )
    seeded = torch.Generator().manual_seed
    close(*both(lambda: kernels.sample_parts("sequence", scores, layout, sizes, 5, seeded(1))))
    here, there = both(lambda: kernels.k_best_parts("sequence", scores, layout, sizes, 6))
    close(here[0], there[0])
    close(here[1], there[1])


@pytest.mark.parametrize("layout", [(5, 3, 1, 1, 1), (7, 9, 0, 0, 1), (5, 4, 2, 0, 0)], ids=str)
def test_ties_are_broken_alike(layout, rng):
    scores, sizes = instances(rng, layout)
    scores = scores.round()
    close(*both(lambda: kernels.best_parts("sequence", scores, layout, sizes)))
    here, there = both(lambda: kernels.k_best_parts("sequence", scores, layout, sizes, 9))
    close(here[0], there[0])
    for omega in ("entropy", "l2"):
        here, there = both(
            partial(kernels.smoothed, "sequence", scores, layout, sizes, omega, 1.0, True)
        )
        close(here[1], there[1])


def each_position(scores, layout):
    """The same chain with its transitions written out for each position."""
    positions, k = layout[:2]
    emissions, square, ends = scores.split(
        [positions * k, k * k, scores.shape[1] - positions * k - k * k], 1
    )
    return torch.cat([emissions, square.repeat(1, positions - 1), ends], 1)


def agrees_with_scores(scores, layout, sizes, rng, tolerance=1e-10):
    """Probabilities (shared transitions) against the domain of scores (one square a position)."""
    positions, k = layout[:2]
    wide, written = each_position(scores, layout), (positions, k, 2, *layout[3:])
    value, means = kernels.smoothed("sequence", scores, layout, sizes, "entropy", 1.0, True)
    other, other_means = kernels.smoothed("sequence", wide, written, sizes, "entropy", 1.0, True)
    close(value, other, tolerance)
    direction = torch.randn(scores.shape, generator=rng, dtype=torch.float64)
    turned = kernels.smoothed_product("sequence", scores, direction, layout, sizes, "entropy", 1.0)
    other_turned = kernels.smoothed_product(
        "sequence", wide, each_position(direction, layout), written, sizes, "entropy", 1.0
    )
    for mine, theirs in ((means, other_means), (turned, other_turned)):
        assert bool(mine.isfinite().all())
        steps = theirs[:, positions * k :][:, : (positions - 1) * k * k]
        close(mine[:, : positions * k], theirs[:, : positions * k], tolerance)
        summed = steps.reshape(-1, positions - 1, k * k).sum(1)
        close(mine[:, positions * k :][:, : k * k], summed, tolerance * 10)


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0, 250.0, 1e4])
@pytest.mark.parametrize("forbid", [0.0, 0.4])
def test_probabilities_agree_with_scores(scale, forbid, rng):
    layout = (60, 6, 1, 1, 1)
    scores, sizes = instances(rng, layout, count=8, scale=scale)
    square = scores[:, 360:396]
    square[torch.rand(square.shape, generator=rng) < forbid] = -math.inf
    square[:, ::7] = 0.0  # a tag may always stay
    agrees_with_scores(scores, layout, sizes, rng, 1e-10 * max(1.0, scale / 100))


def test_what_underflows_is_not_lost(rng):
    """A tag of probability exp(-900) is the only way to go on: probabilities alone would say 0."""
    scores = torch.zeros(1, 3 * 2 + 4, dtype=torch.float64)
    scores[0, 1] = -900.0  # the second tag, first position
    scores[0, 6] = scores[0, 8] = -math.inf  # nothing goes on to the first tag
    scores[0, 7] = -math.inf  # and only the second goes on to the second
    value, means = kernels.smoothed(
        "sequence", scores, (3, 2, 1, 0, 0), torch.tensor([[3]]), "entropy", 1.0, True
    )
    assert float(value) == -900.0
    assert means[0].tolist() == [0, 1, 0, 1, 0, 1, 0, 0, 0, 2]
    agrees_with_scores(scores, (3, 2, 1, 0, 0), torch.tensor([[3]]), rng)


def test_a_long_chain_agrees_with_scores(rng):
    layout = (1000, 50, 1, 1, 1)
    scores, sizes = instances(rng, layout, count=1)
    agrees_with_scores(scores, layout, sizes, rng, 1e-9)


def test_threads_do_not_change_the_answer(rng, threads):
    layout = (50, 12, 1, 0, 0)
    scores, sizes = instances(rng, layout, count=64)
    one = kernels.smoothed("sequence", scores, layout, sizes, "entropy", 1.0, True)
    threads(4)
    many = kernels.smoothed("sequence", scores, layout, sizes, "entropy", 1.0, True)
    assert torch.equal(one[0], many[0])
    assert torch.equal(one[1], many[1])
