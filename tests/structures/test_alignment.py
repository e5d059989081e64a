from __future__ import annotations

import itertools
import math

import pytest
import torch

import fenchel as fy
from fenchel.structures import Alignment

SIZES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 4), (4, 3), (4, 4)]
sizes = pytest.mark.parametrize("size", SIZES, ids=str)
omegas = pytest.mark.parametrize("omega", ["entropy", "l2"])


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=generator)


def members(m: int, n: int, band: float | None = None) -> torch.Tensor:
    """All paths as 0s and 1s, (paths, m, n)."""
    rows = []
    for parts in Alignment(band).enumerate(m, n):
        path = torch.zeros(m * n, dtype=torch.float64)
        path[list(parts)] = 1
        rows.append(path.reshape(m, n))
    return torch.stack(rows)


def soft(scores: torch.Tensor, omega: str, gamma: float, **sizes: torch.Tensor) -> torch.Tensor:
    structure = Alignment()
    problem = structure._problem("test", scores, **sizes)
    return problem.values(structure._smoothed_max(problem, omega, gamma))


def means(scores: torch.Tensor, omega: str, gamma: float, **sizes: torch.Tensor) -> torch.Tensor:
    structure = Alignment()
    problem = structure._problem("test", scores, **sizes)
    return problem.means(structure._smoothed_argmax(problem, omega, gamma))


def delannoy(m: int, n: int) -> int:
    return sum(math.comb(m, k) * math.comb(n, k) * 2**k for k in range(min(m, n) + 1))


@sizes
def test_enumerates_all_paths_once(size: tuple[int, int]) -> None:
    m, n = size
    paths = list(Alignment().enumerate(m, n))
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


@sizes
@pytest.mark.parametrize(("scale", "gamma"), [(1.0, 1.0), (1.0, 0.3), (1e4, 1.0), (1e4, 1e3)])
def test_entropy_is_the_sum_over_all_paths(
    size: tuple[int, int], scale: float, gamma: float, backend: str
) -> None:
    scores = random(3, *size, seed=2, scale=scale)
    paths = members(*size)
    values = (scores.unsqueeze(1) * paths).sum((2, 3))
    torch.testing.assert_close(
        soft(scores, "entropy", gamma),
        gamma * (values / gamma).logsumexp(1),
        rtol=1e-13,
        atol=1e-13,
    )
    p = (values / gamma).softmax(1)
    expected = (p[:, :, None, None] * paths).sum(1)
    found = means(scores, "entropy", gamma)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)
    assert bool((found[:, 0, 0] == 1).all() and (found[:, -1, -1] == 1).all())


def squared_max(x: list[float], gamma: float) -> float:
    """max <p, x> - gamma/2 |p|^2 over the simplex, by the size of the support."""
    best, y = -math.inf, sorted((v / gamma for v in x if v > -math.inf), reverse=True)
    for size in range(1, len(y) + 1):
        tau = (sum(y[:size]) - 1) / size
        p = [v - tau for v in y[:size]]
        if min(p) >= 0:
            best = max(best, gamma * sum(q * v - q * q / 2 for q, v in zip(p, y, strict=False)))
    return best


@sizes
@pytest.mark.parametrize(("scale", "gamma"), [(1.0, 1.0), (1.0, 4.0), (1e4, 1e4), (1e4, 1.0)])
def test_squared_norm_is_smoothed_at_every_cell(
    size: tuple[int, int], scale: float, gamma: float, backend: str
) -> None:
    scores = random(*size, seed=3, scale=scale)
    m, n = size
    if min(size) > 2:
        scores[1, 0] = -math.inf
    table: dict[tuple[int, int], float] = {}
    for i in range(m):
        for j in range(n):
            before = [table.get(c, -math.inf) for c in ((i - 1, j - 1), (i - 1, j), (i, j - 1))]
            start = 0.0 if i == j == 0 else squared_max(before, gamma)
            table[i, j] = float(scores[i, j]) + start
    value = float(soft(scores, "l2", gamma))
    assert value == pytest.approx(table[m - 1, n - 1], rel=1e-13, abs=1e-12)
    found = means(scores, "l2", gamma)
    assert found[0, 0] == 1 and found[-1, -1] == 1
    assert bool((found >= 0).all()) and bool((found <= 1 + 1e-12).all())


@omegas
@pytest.mark.parametrize("size", [(1, 1), (1, 3), (3, 1), (3, 3), (4, 2)], ids=str)
def test_gradients_of_value_and_means(omega: str, size: tuple[int, int], backend: str) -> None:
    scores = random(2, *size, seed=5)
    if size == (3, 3):
        scores[0, 0, 1] = scores[1, 2, 0] = -math.inf
    free = scores > -math.inf
    leaf = torch.where(free, scores, 0.0).requires_grad_()

    def masked(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(~free, -math.inf)

    assert torch.autograd.gradcheck(lambda x: soft(masked(x), omega, 0.7), leaf)
    assert torch.autograd.gradcheck(lambda x: means(masked(x), omega, 0.7), leaf)
    assert torch.autograd.gradgradcheck(lambda x: soft(masked(x), omega, 0.7), leaf, fast_mode=True)
    assert torch.autograd.gradgradcheck(
        lambda x: means(masked(x), omega, 0.7), leaf, fast_mode=True
    )


@omegas
def test_backends_agree_on_larger_instances(omega: str) -> None:
    if fy.backends().active != "native":
        pytest.skip("no native core here")
    lengths = torch.tensor([[33, 21], [9, 21], [33, 8], [1, 17]])
    for scale, gamma in ((1.0, 1.0), (3.0, 0.1), (1e4, 10.0), (1.0, 50.0)):
        leaf = random(4, 33, 21, seed=6, scale=scale)
        leaf[0, 4, 4:] = leaf[2, 7:9, 3] = -math.inf
        leaf.requires_grad_()
        found = []
        for backend in ("native", "reference"):
            with fy.use_backend(backend):
                mean = means(leaf, omega, gamma, lengths=lengths)
                value = soft(leaf, omega, gamma, lengths=lengths)
                direction = random(4, 33, 21, seed=8)
                (product,) = torch.autograd.grad(mean, leaf, direction)
                (gradient,) = torch.autograd.grad(value.sum(), leaf)
                found.append((value, mean, gradient, product))
        for ours, theirs in zip(*found, strict=True):
            assert not bool(theirs.isnan().any())
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@omegas
def test_padding_changes_no_bit_and_gets_no_gradient(omega: str, backend: str) -> None:
    whole = random(4, 6, 7, seed=9)
    lengths = torch.tensor([[6, 7], [2, 7], [5, 3], [1, 1]])
    padded = whole.clone()
    for row, (m, n) in enumerate(lengths.tolist()):
        padded[row, m:], padded[row, :, n:] = math.nan, math.inf
    padded.requires_grad_()
    value = soft(padded, omega, 0.5, lengths=lengths)
    mean = means(padded, omega, 0.5, lengths=lengths)
    direction = random(4, 6, 7, seed=10)
    (gradient,) = torch.autograd.grad(value.sum(), padded)
    (product,) = torch.autograd.grad(mean, padded, direction)
    best = Alignment().argmax(padded, lengths=lengths)
    for row, (m, n) in enumerate(lengths.tolist()):
        alone = whole[row, :m, :n].clone().requires_grad_()
        assert torch.equal(value[row], soft(alone, omega, 0.5))
        mean_alone = means(alone, omega, 0.5)
        (product_alone,) = torch.autograd.grad(mean_alone, alone, direction[row, :m, :n])
        for found, expected in (
            (mean, mean_alone),
            (gradient, mean_alone),
            (product, product_alone),
            (best, Alignment().argmax(alone)),
        ):
            inside = torch.zeros(6, 7, dtype=torch.float64)
            inside[:m, :n] = expected.detach()
            assert torch.equal(found[row].detach(), inside)


def test_batch_axes_and_float32(backend: str) -> None:
    scores = random(2, 3, 4, 5, seed=11)
    found = means(scores.float(), "entropy", 1.0)
    assert found.dtype == torch.float32 and found.shape == scores.shape
    torch.testing.assert_close(found.double(), means(scores, "entropy", 1.0), rtol=0, atol=1e-6)
    assert soft(scores.float(), "l2", 1.0).shape == (2, 3)
    assert torch.equal(
        means(scores.transpose(2, 3), "entropy", 1.0)[1, 2],
        means(scores[1, 2].T.contiguous(), "entropy", 1.0),
    )
    assert Alignment().argmax(torch.zeros(0, 3, 4)).shape == (0, 3, 4)
    assert soft(torch.zeros(0, 3, 4), "entropy", 1.0).shape == (0,)


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
    if next(iter(Alignment(band).enumerate(m, n)), None) is None:
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


def test_other_smoothings_are_refused() -> None:
    problem = Alignment()._problem("test", torch.zeros(2, 2))
    with pytest.raises(fy.FenchelError, match="no dynamic program for the smoothing 'l3'"):
        Alignment()._smoothed_max(problem, "l3", 1.0)


def test_samples_have_the_expected_alignment() -> None:
    scores = random(2, 4, 4, seed=14)
    scores[0, 1, 0] = -math.inf
    lengths = torch.tensor([[4, 4], [2, 3]])
    structure = Alignment()
    problem = structure._problem("test", scores, lengths)
    parts = structure._sample(problem, 20_000, 0.8, torch.Generator().manual_seed(0))
    assert parts.shape == (20_000, 2, 7)
    for row, (m, n) in enumerate(lengths.tolist()):
        allowed = {tuple(sorted(i // n * 4 + i % n for i in p)) for p in structure.enumerate(m, n)}
        drawn = parts[:, row].unique(dim=0)
        assert {tuple(x for x in path if x >= 0) for path in drawn.tolist()} <= allowed
        average = problem.indicator(parts[:, row]).mean(0)
        expected = structure._smoothed_argmax(problem, "entropy", 0.8)[row]
        assert float((average - expected).abs().max()) < 5 * math.sqrt(0.25 / 20_000)


@pytest.mark.parametrize("k", [1, 3, 30])
def test_k_best_are_the_best_of_all(k: int) -> None:
    scores = random(2, 3, 4, seed=15)
    lengths = torch.tensor([[3, 4], [3, 3]])
    structure = Alignment()
    problem = structure._problem("test", scores, lengths)
    parts, values = structure._k_best(problem, k)
    for row, (m, n) in enumerate(lengths.tolist()):
        paths = members(m, n)
        expected = (paths * scores[row, :m, :n]).sum((1, 2)).sort(descending=True).values[:k]
        found = min(k, len(paths))
        torch.testing.assert_close(values[row, :found], expected, rtol=1e-13, atol=1e-13)
        assert bool((values[row, found:] == -math.inf).all() & (parts[row, found:] == -1).all())
        assert len(parts[row, :found].unique(dim=0)) == found
        sums = problem.indicator(parts[row, :found]) @ problem.scores[row]
        torch.testing.assert_close(sums, expected, rtol=1e-13, atol=1e-13)
