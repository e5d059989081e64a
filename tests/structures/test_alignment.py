from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch

import fenchel as fy
from fenchel.structures import Alignment
from fenchel.testing._truth import l2_max
from tests.structures.case import Refused, case, mask
from tests.structures.members import members_of

SIZES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 4), (4, 3), (4, 4)]
sizes = pytest.mark.parametrize("size", SIZES, ids=str)
PAIRS = torch.tensor([[3, 4], [2, 2], [1, 3]])


def l2_path(problem, flat, at, gamma):
    """The smoothed maximum of instance ``at``, one cell at a time."""
    cells = flat.reshape(problem.layout)
    height, width = problem.sizes[at].tolist()
    best = {}
    for i in range(height):
        for j in range(width):
            before = [best[x] for x in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if x in best]
            start = l2_max(torch.stack(before), gamma) if before else 0.0
            best[i, j] = cells[i, j] + start
    return best[height - 1, width - 1]


path = partial(case, recursion=l2_path)

CASES = [
    path("path", Alignment(), (2, 3, 3)),
    path("path-wide", Alignment(), (2, 4)),
    path("path-1", Alignment(), (2, 1, 1)),
    path("path-band", Alignment(1), (2, 4, 4)),
    path("path-lengths", Alignment(), (3, 3, 4), lengths=PAIRS),
    path("path-mask", Alignment(), (2, 3, 3), mask=mask(2, 3, 3, off=[(0, 1, 1), (1, 0, 2)])),
]
SOLVED = [path("alignments", Alignment(), (2, 4, 4))]
FACES = [path("alignment-6", Alignment(), (1, 6, 6))]
REFUSED = [
    Refused(
        Alignment(),
        torch.zeros(2, 3, 4),
        "as (row, column) pairs, an integer tensor of shape (2, longest, 2), or as 0s and 1s, "
        "boolean or floating, of shape (2, 3, 4)",
        None,
    )
]


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=generator)


def members(m: int, n: int, band: float | None = None) -> torch.Tensor:
    """All paths as 0s and 1s, (paths, m, n)."""
    rows = []
    for parts in members_of(Alignment(band), m, n):
        one = torch.zeros(m * n, dtype=torch.float64)
        one[list(parts)] = 1
        rows.append(one.reshape(m, n))
    return torch.stack(rows)


def delannoy(m: int, n: int) -> int:
    return sum(math.comb(m, k) * math.comb(n, k) * 2**k for k in range(min(m, n) + 1))


@sizes
def test_enumerates_all_paths_once(size: tuple[int, int]) -> None:
    m, n = size
    paths = list(members_of(Alignment(), m, n))
    assert len(set(paths)) == len(paths) == delannoy(m - 1, n - 1)
    for path in paths:
        cells = [divmod(part, n) for part in path]
        assert cells[0] == (0, 0) and cells[-1] == (m - 1, n - 1)
        for (i, j), (k, h) in itertools.pairwise(cells):
            assert (k - i, h - j) in {(1, 0), (0, 1), (1, 1)}


@sizes
@pytest.mark.parametrize("kind", ["random", "large", "ties", "masked"])
def test_argmax_is_best_of_all(size: tuple[int, int], kind: str, backend: str) -> None:
    scores = random(5, *size, seed=1)
    if kind == "large":
        scores = 1e4 * scores
    elif kind == "ties":
        scores = scores.round()
    elif kind == "masked" and min(size) > 1:
        scores[:, 0, 1] = -math.inf
    best = Alignment().argmax(scores)
    paths = members(*size)
    for one, matrix in zip(best, scores, strict=True):
        assert (paths == one).all(2).all(1).any()
        values = torch.where(paths > 0, matrix, 0.0).sum((1, 2))
        value = torch.where(one > 0, matrix, 0.0).sum()
        assert float(value) == pytest.approx(float(values.max()), rel=1e-14)


@pytest.mark.parametrize("band", [0, 0.5, 1, 2])
@pytest.mark.parametrize("size", [(4, 4), (5, 3), (3, 5), (1, 4), (4, 1), (2, 6)], ids=str)
def test_band_is_a_mask(size: tuple[int, int], band: float, backend: str) -> None:
    m, n = size
    inside = torch.ones(m, n, dtype=torch.bool)
    for i in range(m):
        for j in range(n):
            if m >= n > 1:
                inside[i, j] = abs(j - i * (n - 1) / (m - 1)) <= band + 1e-12
            elif n > m > 1:
                inside[i, j] = abs(i - j * (m - 1) / (n - 1)) <= band + 1e-12
    scores = random(m, n, seed=12)
    if next(Alignment(band).enumerate(Alignment().problem("test", scores)), None) is None:
        assert band < 0.5
        with pytest.raises(fy.FenchelError, match="widen the band"):
            Alignment(band).argmax(scores)
        return
    expected = Alignment().argmax(scores, mask=inside)
    assert torch.equal(Alignment(band).argmax(scores), expected)
    assert bool((members(m, n, band).amax(0) <= inside).all())
    # The same inside padding, where every instance has a slope of its own.
    wide = torch.full((2, m + 2, n + 1), math.nan, dtype=torch.float64)
    wide[:, :m, :n], wide[1] = scores, 0.0
    lengths = torch.tensor([[m, n], [m + 1, m + 1 if m < n else n]])
    found = Alignment(max(band, 0.5)).argmax(wide, lengths=lengths)
    assert torch.equal(found[0, :m, :n], Alignment(max(band, 0.5)).argmax(scores))


def test_infeasible_masks_and_bands_are_refused(backend: str) -> None:
    scores = torch.zeros(2, 3, 3)
    scores[1, 1] = -math.inf
    with pytest.raises(fy.FenchelError) as error:
        Alignment().argmax(scores)
    assert str(error.value) == (
        "Alignment: expected a path of finite scores from corner to corner, but instance 1 of the "
        "batch has none; mask fewer cells."
    )
    with pytest.raises(fy.FenchelError) as error:
        Alignment(band=0.2).argmax(torch.zeros(4, 3))
    assert str(error.value) == (
        "Alignment: expected a path of finite scores from corner to corner, but instance 0 of the "
        "batch has none; mask fewer cells or widen the band of 0.2 (from 0.5 on it always holds a "
        "path)."
    )
    with pytest.raises(fy.FenchelError, match="`band` must be at least 0"):
        Alignment(band=-1)


def test_targets_are_pairs_or_matrices() -> None:
    scores = random(2, 3, 3, seed=13).requires_grad_()
    pairs = torch.tensor([[[0, 0], [1, 1], [2, 2], [-1, -1]], [[0, 0], [0, 1], [1, 1], [2, 2]]])
    matrix = torch.zeros(2, 3, 3)
    matrix[0, [0, 1, 2], [0, 1, 2]] = 1
    matrix[1, [0, 0, 1, 2], [0, 1, 1, 2]] = 1
    total = Alignment().score(scores, pairs)
    torch.testing.assert_close(total, (scores * matrix).sum((1, 2)))
    torch.testing.assert_close(Alignment().score(scores, matrix), total, rtol=0, atol=0)
    torch.testing.assert_close(Alignment().score(scores, matrix.bool()), total, rtol=0, atol=0)
    total.sum().backward()
    assert torch.equal(scores.grad, matrix.double())
    best = Alignment().argmax(scores)
    torch.testing.assert_close(
        Alignment().score(scores, best), (scores * best).sum((1, 2)), rtol=1e-14, atol=0
    )


@pytest.mark.parametrize(
    "path",
    [
        [[0, 0], [1, 1]],  # ends too early
        [[0, 1], [1, 1], [2, 2]],  # starts elsewhere
        [[0, 0], [2, 2], [2, 2]],  # jumps
        [[0, 0], [1, 1], [1, 1], [2, 2]],  # stays
        [[0, 0], [1, 1], [0, 1], [1, 2], [2, 2]],  # goes back
        [[0, 0], [-1, -1], [1, 1], [2, 2]],  # a hole
        [[0, 0], [1, 1], [2, 2], [3, 3]],  # leaves
        [[-1, -1]],
    ],
    ids=str,
)
def test_targets_that_are_no_paths_are_refused(path: list[list[int]]) -> None:
    with pytest.raises(fy.FenchelError) as error:
        Alignment().score(torch.zeros(3, 3), torch.tensor(path))
    assert str(error.value) == (
        "Alignment.score: expected a path from (0, 0) to (2, 2) by steps (1, 0), (0, 1) and (1, 1) "
        "in `target`, filled up with -1, but instance 0 of the batch is none."
    )


def test_targets_of_another_form_are_refused() -> None:
    for target in (torch.zeros(3, 3, dtype=torch.int64), torch.zeros(3, 2), [0, 1]):
        with pytest.raises(fy.FenchelError, match=r"as \(row, column\) pairs, an integer tensor"):
            Alignment().score(torch.zeros(3, 3), target)
    with pytest.raises(fy.FenchelError, match="other values"):
        Alignment().score(torch.zeros(2, 2), torch.full((2, 2), 0.5))


def test_samples_have_the_expected_alignment() -> None:
    scores = random(2, 4, 4, seed=14)
    scores[0, 1, 0] = -math.inf
    lengths = torch.tensor([[4, 4], [2, 3]])
    structure = Alignment()
    problem = structure.problem("test", scores, lengths)
    parts = structure.sample_parts(problem, 20_000, 0.8, torch.Generator().manual_seed(0))
    assert parts.shape == (20_000, 2, 7)
    for row in range(2):
        allowed = set(structure.enumerate(problem, row))
        drawn = parts[:, row].unique(dim=0)
        assert {tuple(x for x in path if x >= 0) for path in drawn.tolist()} <= allowed
        average = problem.indicator(parts[:, row]).mean(0)
        expected = structure.smoothed_argmax(problem, "entropy", 0.8)[row]
        assert float((average - expected).abs().max()) < 5 * math.sqrt(0.25 / 20_000)


@pytest.mark.parametrize("k", [1, 3, 30])
def test_k_best_are_the_best_of_all(k: int) -> None:
    scores = random(2, 3, 4, seed=15)
    lengths = torch.tensor([[3, 4], [3, 3]])
    structure = Alignment()
    problem = structure.problem("test", scores, lengths)
    parts, values = structure.k_best_parts(problem, k)
    for row, (m, n) in enumerate(lengths.tolist()):
        paths = members(m, n)
        expected = (paths * scores[row, :m, :n]).sum((1, 2)).sort(descending=True).values[:k]
        found = min(k, len(paths))
        torch.testing.assert_close(values[row, :found], expected, rtol=1e-13, atol=1e-13)
        assert bool((values[row, found:] == -math.inf).all() & (parts[row, found:] == -1).all())
        assert len(parts[row, :found].unique(dim=0)) == found
        sums = problem.indicator(parts[row, :found]) @ problem.scores[row]
        torch.testing.assert_close(sums, expected, rtol=1e-13, atol=1e-13)
