from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from fenchel.structures import Alignment
from tests.structures.members import members_of

SIZES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 4), (4, 3), (4, 4)]
sizes = pytest.mark.parametrize("size", SIZES, ids=str)
omegas = pytest.mark.parametrize("omega", ["entropy", "l2"])


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=generator)


def members(m: int, n: int, band: float | None = None) -> torch.Tensor:
    """All paths as 0s and 1s, (paths, m, n)."""
    rows = []
    for parts in members_of(Alignment(band), m, n):
        path = torch.zeros(m * n, dtype=torch.float64)
        path[list(parts)] = 1
        rows.append(path.reshape(m, n))
    return torch.stack(rows)


def soft(scores: torch.Tensor, omega: str, gamma: float, **sizes: torch.Tensor) -> torch.Tensor:
    structure = Alignment()
    problem = structure.problem("test", scores, **sizes)
    return problem.values(structure.smoothed_max(problem, omega, gamma))


def means(scores: torch.Tensor, omega: str, gamma: float, **sizes: torch.Tensor) -> torch.Tensor:
    structure = Alignment()
    problem = structure.problem("test", scores, **sizes)
    return problem.means(structure.smoothed_argmax(problem, omega, gamma))


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


def test_other_smoothings_are_refused() -> None:
    problem = Alignment().problem("test", torch.zeros(2, 2))
    with pytest.raises(fy.FenchelError, match="no dynamic program for the smoothing 'l3'"):
        Alignment().smoothed_max(problem, "l3", 1.0)
