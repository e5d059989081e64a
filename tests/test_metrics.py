"""Metrics of sparse models: hand values, mpmath and scipy as truth, ignored rows, batches."""

from __future__ import annotations

import dataclasses
import math

import mpmath
import pytest
import torch
from scipy.spatial import distance

import fenchel as fy
from fenchel import metrics
from fenchel.metrics import GoldMetrics

INF = math.inf
F64 = torch.float64
FUNCTIONS = {
    name: getattr(metrics, name)
    for name in ("epsilon_perplexity", "sparsemax_score", "jensen_shannon", "zero_mass_rate")
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
HALF = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])


def sparse_rows(*shape: int, rng: torch.Generator, dtype=F64, dim: int = -1) -> torch.Tensor:
    scores = torch.randn(shape, generator=rng, dtype=F64) * 2
    return fy.entmax15(scores, dim=dim).to(dtype)


def classes(*shape: int, n: int, rng: torch.Generator) -> torch.Tensor:
    return torch.randint(n, shape, generator=rng)


def divergence(p: torch.Tensor, q: torch.Tensor) -> float:
    """Jensen-Shannon's with 50 digits, from the definition."""
    with mpmath.workdps(50):
        total = mpmath.mpf(0)
        for a, b in zip(p.tolist(), q.tolist(), strict=True):
            a, b = mpmath.mpf(a), mpmath.mpf(b)
            for x in (a, b):
                if x > 0:
                    total += x * mpmath.log(2 * x / (a + b)) / 2
        return float(total)


# ------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("epsilon_perplexity", math.sqrt((1 + 3e-5) ** 2 / (0.50001 * 1e-5))),
        ("sparsemax_score", (0.75 + 0.25) / 2),
        ("jensen_shannon", (0.25 * math.log(0.5) + 0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3)
                            + 0.5 * math.log(2) + math.log(2)) / 2),
        ("zero_mass_rate", 0.5),
    ],
)  # fmt: skip
def test_by_hand(name, expected):
    got = FUNCTIONS[name](HALF, torch.tensor([0, 0]))
    assert got.dtype == F64 and got.shape == ()
    assert got.item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("epsilon", [1e-8, 1e-5, 0.01, 1.0])
def test_against_mpmath(dtype, epsilon, rng):
    p, target = sparse_rows(30, 6, rng=rng, dtype=dtype), classes(30, n=6, rng=rng)
    rows, gold = p.double().tolist(), target.tolist()
    with mpmath.workdps(50):
        ratios = [
            (mpmath.mpf(row[y]) + epsilon) / (1 + mpmath.mpf(epsilon) * 6)
            for row, y in zip(rows, gold, strict=True)
        ]
        perplexity = float(mpmath.exp(-sum(map(mpmath.log, ratios)) / 30))
        score = float(
            sum(
                row[y] + (1 - sum(mpmath.mpf(x) ** 2 for x in row)) / 2
                for row, y in zip(rows, gold, strict=True)
            )
            / 30
        )
    assert metrics.epsilon_perplexity(p, target, epsilon).item() == pytest.approx(perplexity, 1e-13)
    assert metrics.sparsemax_score(p, target).item() == pytest.approx(score, 1e-13)
    empty = sum(row[y] == 0 for row, y in zip(rows, gold, strict=True))
    assert empty > 0
    assert metrics.zero_mass_rate(p, target).item() == empty / 30


def test_plain_perplexity(rng):
    p, target = torch.softmax(torch.randn(8, 5, generator=rng), -1), classes(8, n=5, rng=rng)
    expected = torch.nn.functional.nll_loss(p.double().log(), target).exp()
    torch.testing.assert_close(metrics.epsilon_perplexity(p, target, 0), expected)
    assert metrics.epsilon_perplexity(HALF, torch.tensor([0, 0]), 0) == INF
    assert metrics.epsilon_perplexity(HALF, torch.tensor([0, 1]), 0) == pytest.approx(2)


def test_a_smaller_epsilon_punishes_an_empty_gold_class_more():
    at = [metrics.epsilon_perplexity(HALF, torch.tensor([0, 0]), e) for e in (1e-2, 1e-5, 1e-9, 0)]
    assert at == sorted(at) and len(set(at)) == 4


def test_the_best_and_the_worst():
    p, right, wrong = torch.eye(3), torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    assert metrics.epsilon_perplexity(p, right, 0) == 1
    assert metrics.sparsemax_score(p, right) == 1 and metrics.sparsemax_score(p, wrong) == 0
    assert metrics.jensen_shannon(p, right) == 0
    assert metrics.jensen_shannon(p, wrong) == math.log(2)
    assert metrics.zero_mass_rate(p, right) == 0 and metrics.zero_mass_rate(p, wrong) == 1


# ---------------------------------------------------------------------------------- Jensen-Shannon


def test_divergence_from_distributions_against_scipy(rng):
    p, q = sparse_rows(50, 7, rng=rng), sparse_rows(50, 7, rng=rng)
    expected = (distance.jensenshannon(p.numpy(), q.numpy(), axis=-1) ** 2).mean()
    assert metrics.jensen_shannon(p, q).item() == pytest.approx(expected, 1e-13)
    assert metrics.jensen_shannon(q, p).item() == pytest.approx(expected, 1e-13)


@pytest.mark.parametrize("gap", [0.5, 1e-2, 1e-5, 1e-9, 1e-14])
def test_divergence_keeps_its_digits_close_to_0(gap):
    p = torch.tensor([0.5 + gap / 2, 0.5 - gap / 2, 0.0], dtype=F64)
    q = torch.tensor([0.5, 0.5, 0.0], dtype=F64)
    assert metrics.jensen_shannon(p, q).item() == pytest.approx(divergence(p, q), rel=1e-13, abs=0)
    p, q = torch.tensor([1 - gap, 0.0], dtype=F64), torch.tensor([1.0, 0.0], dtype=F64)
    p[1] = 1 - p[0]
    gold = metrics.jensen_shannon(p, torch.tensor(0)).item()
    assert gold == pytest.approx(divergence(p, q), rel=1e-13, abs=0)


def test_divergence_of_equal_and_of_disjoint_distributions(rng):
    p = sparse_rows(20, 9, rng=rng, dtype=torch.float32)
    assert metrics.jensen_shannon(p, p) == 0
    disjoint = torch.tensor([[0.25, 0.75, 0, 0]]), torch.tensor([[0, 0, 0.125, 0.875]])
    assert metrics.jensen_shannon(*disjoint) == math.log(2)


def test_classes_and_one_hot_distributions_agree(rng):
    p, target = sparse_rows(4, 6, 5, rng=rng, dim=1), classes(4, 5, n=6, rng=rng)
    q = torch.nn.functional.one_hot(target, 6).movedim(-1, 1)
    by_class = metrics.jensen_shannon(p, target, dim=1)
    for dtype in (F64, torch.float32):
        torch.testing.assert_close(metrics.jensen_shannon(p, q.to(dtype), dim=1), by_class)


# ------------------------------------------------------------------------ shapes and ignored rows


@every_function
def test_any_axis_and_any_shape(function, rng):
    p, target = sparse_rows(2, 3, 5, rng=rng), classes(2, 3, n=5, rng=rng)
    expected = function(p.reshape(6, 5), target.reshape(6))
    assert torch.equal(function(p, target), expected)
    assert torch.equal(function(p.movedim(-1, 1), target, dim=1), expected)
    assert torch.equal(function(p, target.int()), expected)
    assert function(p[0, 0], target[0, 0]).shape == ()
    alone = torch.stack([function(p[i, j], target[i, j]) for i in range(2) for j in range(3)])
    mean = alone.log().mean().exp() if function is metrics.epsilon_perplexity else alone.mean()
    torch.testing.assert_close(mean, expected)


@every_function
@pytest.mark.parametrize("ignore_index", [-100, -1, 2, 77])
def test_ignored_rows_do_not_count_whatever_they_hold(function, ignore_index, rng):
    p, target = sparse_rows(6, 5, rng=rng), torch.tensor([0, 1, 3, 4, 0, 1])
    kept = torch.tensor([0, 2, 3, 5])
    expected = function(p[kept], target[kept])
    p[1], p[4] = math.nan, 0.0
    target[[1, 4]] = ignore_index
    assert torch.equal(function(p, target, ignore_index=ignore_index), expected)


@every_function
def test_nothing_to_count_is_nan(function):
    assert function(HALF, torch.tensor([-100, -100])).isnan()
    assert function(HALF[:0], torch.zeros(0, dtype=torch.int64)).isnan()


def test_no_rows_of_distributions_is_nan():
    assert metrics.jensen_shannon(HALF[:0], HALF[:0]).isnan()


@every_function
def test_no_graph(function, rng):
    p = sparse_rows(3, 4, rng=rng).requires_grad_()
    assert not function(p, torch.tensor([0, 1, 2])).requires_grad


@every_function
def test_many_rows_are_taken_in_blocks(function, monkeypatch, rng):
    p, target = sparse_rows(50, 7, rng=rng), classes(50, n=7, rng=rng)
    expected = function(p, target)
    monkeypatch.setattr(fy.metrics, "_BLOCK", 20)
    torch.testing.assert_close(function(p, target), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("n", [300, 1_150_000])  # the latter rounds to a sum of 1.03 in float16
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_long_rows_in_half_precision_are_accepted(dtype, n):
    p = torch.full((2, n), 1 / n).to(dtype)
    assert metrics.zero_mass_rate(p, torch.tensor([0, 7])) == 0


# ------------------------------------------------------------------------------------- accumulator


@pytest.mark.parametrize("sizes", [(40,), (1,) * 40, (7, 0, 20, 13)], ids=lambda s: f"{len(s)}")
def test_batches_do_not_change_the_result(sizes, rng):
    p, target = sparse_rows(40, 6, rng=rng, dtype=torch.float32), classes(40, n=6, rng=rng)
    target[::5] = -100
    accumulator = GoldMetrics(epsilon=1e-3)
    for part, gold in zip(p.split(sizes), target.split(sizes), strict=True):
        accumulator.update(part, gold)
    got, kept = accumulator.compute(), target != -100
    expected = {
        "epsilon_perplexity": metrics.epsilon_perplexity(p, target, 1e-3),
        "sparsemax_score": metrics.sparsemax_score(p, target),
        "jensen_shannon": metrics.jensen_shannon(p, target),
        "zero_mass_rate": metrics.zero_mass_rate(p, target),
        "accuracy": (p.argmax(-1) == target)[kept].double().mean(),
        "support_size": (p > 0).sum(-1)[kept].double().mean(),
        "rows": 32,
    }
    assert dataclasses.asdict(got) == pytest.approx({k: float(v) for k, v in expected.items()})
    for name, value in expected.items():
        assert getattr(got, name) == pytest.approx(float(value), rel=1e-13)
    assert isinstance(got.rows, int)


def test_accumulator_by_hand():
    accumulator = GoldMetrics(epsilon=0)
    accumulator.update(HALF, torch.tensor([0, 1]))
    accumulator.update(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # another number of classes
    got = accumulator.compute()
    assert got.epsilon_perplexity == pytest.approx(2 ** (2 / 3))
    assert got.sparsemax_score == pytest.approx((0.75 + 0.75 + 1) / 3)
    assert got.accuracy == 1 and got.zero_mass_rate == 0
    assert got.support_size == pytest.approx(5 / 3)
    assert got.rows == 3
    accumulator.update(HALF, torch.tensor([2, 0]))
    got = accumulator.compute()
    assert got.epsilon_perplexity == INF
    assert got.zero_mass_rate == 0.4 and got.accuracy == 0.6


def test_reset_and_nothing_yet():
    accumulator = GoldMetrics()
    for _ in range(2):
        summary = dataclasses.asdict(accumulator.compute())
        assert summary.pop("rows") == 0
        assert all(math.isnan(value) for value in summary.values())
        accumulator.update(HALF, torch.tensor([-100, -100]))
        assert math.isnan(accumulator.compute().accuracy)
        accumulator.update(HALF, torch.tensor([0, -100]))
        assert accumulator.compute().rows == 1
        accumulator.reset()


def test_a_refused_batch_leaves_the_accumulator_alone():
    accumulator = GoldMetrics()
    accumulator.update(HALF, torch.tensor([0, 1]))
    before = accumulator.compute()
    with pytest.raises(fy.FenchelError):
        accumulator.update(HALF, torch.tensor([0, 3]))
    assert accumulator.compute() == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.rows = 0


def test_accumulator_arguments(rng):
    p, target = sparse_rows(4, 5, 3, rng=rng, dim=1), classes(4, 3, n=5, rng=rng)
    accumulator = GoldMetrics(0.1, dim=1, ignore_index=2)
    assert repr(accumulator) == "GoldMetrics(epsilon=0.1, dim=1, ignore_index=2)"
    accumulator.update(p, target.masked_fill(target == 1, 2))
    expected = metrics.epsilon_perplexity(
        p, target.masked_fill(target == 1, 2), 0.1, dim=1, ignore_index=2
    )
    assert accumulator.compute().epsilon_perplexity == pytest.approx(float(expected))
    assert accumulator.compute().rows == int(((target != 1) & (target != 2)).sum())


def test_float64_sums_of_many_small_batches():
    accumulator = GoldMetrics()
    p, target = torch.tensor([[0.1, 0.9]]), torch.tensor([0])
    for _ in range(1000):
        accumulator.update(p, target)
    one = metrics.sparsemax_score(p, target).item()
    assert accumulator.compute().sparsemax_score == pytest.approx(one, rel=1e-13)
