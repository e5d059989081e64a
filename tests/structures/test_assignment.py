from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy.optimize import linear_sum_assignment

import fenchel as fy
from fenchel.structures import Assignment
from tests.structures.case import Refused, case, mask
from tests.structures.members import members_of

SHAPES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 3), (4, 4), (3, 5), (5, 3)]
PAIRS = torch.tensor([[3, 4], [2, 2], [1, 3]])

CASES = [
    case("square", Assignment(), (2, 3, 3)),
    case("wide", Assignment(), (2, 4)),
    case("tall", Assignment(), (2, 4, 2)),
    case("match-lengths", Assignment(), (3, 3, 4), lengths=PAIRS),
    case("match-mask", Assignment(), (2, 3, 3), mask=mask(2, 3, 3, off=[(0, 0, 0), (1, 2, 1)])),
]
SOLVED = [
    case("assignments", Assignment(), (2, 4, 4)),
    case("rectangles", Assignment(), (2, 3, 5)),
]
FACES = [case("assignment-6", Assignment(), (1, 6, 6))]
REFUSED = [
    Refused(
        Assignment(),
        torch.zeros(2, 3, 4),
        "to hold the column of each row, an integer tensor of shape (2, 3)",
        (2, 3),
    )
]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def best_value(scores: torch.Tensor) -> float:
    """The best exact sum over all assignments."""
    flat = scores.flatten().tolist()
    members = members_of(Assignment(), *scores.shape)
    return max(math.fsum(flat[part] for part in parts) for parts in members)


def value(scores: torch.Tensor, best: torch.Tensor) -> float:
    return math.fsum(scores[best > 0].tolist())


def is_assignment(best: torch.Tensor) -> bool:
    n, m = best.shape
    rows, columns = best.sum(1), best.sum(0)
    short, long = (rows, columns) if n <= m else (columns, rows)
    zero_one = bool(((best == 0) | (best == 1)).all())
    return zero_one and bool((short == 1).all() & (long <= 1).all())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_enumerates_all_assignments_once(shape: tuple[int, int]) -> None:
    n, m = shape
    members = list(members_of(Assignment(), n, m))
    assert len(set(members)) == len(members) == math.perm(max(n, m), min(n, m))
    for parts in members:
        best = torch.zeros(n * m)
        best[list(parts)] = 1
        assert is_assignment(best.reshape(n, m))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["random", "large", "mixed", "ties", "masked"])
def test_argmax_is_best_of_all(shape: tuple[int, int], kind: str, backend: str) -> None:
    scores = random(*shape, seed=3)
    coins = torch.rand(shape, generator=torch.Generator().manual_seed(4))
    if kind == "large":
        scores = 1e4 * scores
    elif kind == "mixed":
        scores = torch.where(coins < 0.5, 1e4 * scores.round(), 1e-7 * scores)
    elif kind == "ties":
        scores = scores.round()
    elif kind == "masked":
        keep = torch.eye(*shape).bool() | (coins < 0.6)
        scores = scores.masked_fill(~keep, -math.inf)
    best = Assignment().argmax(scores)
    assert is_assignment(best)
    assert value(scores, best) == pytest.approx(best_value(scores), rel=1e-14, abs=1e-14)


@pytest.mark.parametrize("shape", [(12, 12), (20, 31), (31, 20), (40, 40)], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_argmax_matches_scipy(shape: tuple[int, int], scale: float, backend: str) -> None:
    scores = scale * random(3, *shape, seed=1)
    scores[1] = scores[1].round()  # many ties
    best = Assignment().argmax(scores)
    for one, matrix in zip(best, scores, strict=True):
        assert is_assignment(one)
        theirs = matrix.numpy()[linear_sum_assignment(matrix.numpy(), maximize=True)]
        assert value(matrix, one) == pytest.approx(math.fsum(theirs), rel=1e-13)


def test_is_deterministic_on_ties(backend: str) -> None:
    first = Assignment().argmax(torch.zeros(2, 6, 6))
    assert torch.equal(first[0], first[1])
    assert torch.equal(first, Assignment().argmax(torch.zeros(2, 6, 6)))


def test_padding_is_never_used(backend: str) -> None:
    scores = random(4, 5, 6, seed=7)
    lengths = torch.tensor([[5, 6], [3, 6], [5, 2], [1, 1]])
    padded = scores.clone()
    for row, (n, m) in enumerate(lengths.tolist()):
        padded[row, n:] = math.nan
        padded[row, :, m:] = math.inf
    best = Assignment().argmax(padded, lengths=lengths)
    for row, (n, m) in enumerate(lengths.tolist()):
        assert torch.equal(best[row, :n, :m], Assignment().argmax(scores[row, :n, :m]))
        assert best[row].sum() == min(n, m)


def test_batch_axes_dtypes_and_masks(backend: str) -> None:
    scores = random(2, 3, 4, 4, seed=2)
    mask = torch.rand(4, 4, generator=torch.Generator().manual_seed(0)) < 0.6
    mask |= torch.eye(4, dtype=torch.bool)
    best = Assignment().argmax(scores.float(), mask=mask)
    assert best.dtype == torch.float32 and best.shape == scores.shape
    assert not best[:, :, ~mask].any()
    for i, j in itertools.product(range(2), range(3)):
        alone = Assignment().argmax(scores[i, j].masked_fill(~mask, -math.inf))
        assert torch.equal(best[i, j].double(), alone)
    assert Assignment().argmax(torch.zeros(0, 3, 4)).shape == (0, 3, 4)
    swapped = Assignment().argmax(scores.transpose(-1, -2))  # not contiguous
    assert torch.equal(swapped, Assignment().argmax(scores).transpose(-1, -2))


def test_score_is_differentiable_in_the_pairs_of_the_target() -> None:
    scores = random(3, 3, 4, seed=5).requires_grad_()
    target = torch.tensor([[0, 1, 2], [3, 0, 1], [2, 3, 0]])
    total = Assignment().score(scores, target)
    expected = scores.gather(2, target.unsqueeze(2)).squeeze(2).sum(1)
    assert torch.allclose(total, expected, rtol=0, atol=1e-14)
    total.sum().backward()
    assert torch.equal(scores.grad, torch.nn.functional.one_hot(target, 4).double())


def test_targets_of_tall_matrices_leave_rows_out() -> None:
    scores = random(4, 2, seed=6)
    total = Assignment().score(scores, torch.tensor([-1, 1, -1, 0]))
    assert float(total) == pytest.approx(float(scores[1, 1] + scores[3, 0]))
    padded = Assignment().score(scores, torch.tensor([1, 0, -1, -1]), lengths=torch.tensor([2, 2]))
    assert float(padded) == pytest.approx(float(scores[0, 1] + scores[1, 0]))


@pytest.mark.parametrize("target", [[0, 0], [0, 3], [-1, 1], [-2, 1]], ids=str)
def test_targets_that_are_no_assignments_are_refused(target: list[int]) -> None:
    with pytest.raises(fy.FenchelError) as error:
        Assignment().score(torch.zeros(2, 3), torch.tensor(target))
    assert str(error.value) == (
        "Assignment.score: expected an assignment in `target`: 2 of the 2 rows with a column of "
        "their own below 3, the other rows with -1; but instance 0 of the batch has "
        f"{target}."
    )


def test_targets_of_another_form_are_refused() -> None:
    for target in (torch.zeros(3, dtype=torch.int64), torch.zeros(2), [0, 1]):
        with pytest.raises(fy.FenchelError, match="the column of each row, an integer tensor"):
            Assignment().score(torch.zeros(2, 3), target)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 2)], ids=str)
def test_infeasible_masks_are_refused(shape: tuple[int, int], backend: str) -> None:
    scores = torch.zeros(2, *shape)
    scores[1] = -math.inf
    scores[1, :, 0] = 0.0 if shape != (3, 2) else -math.inf
    scores[1, 0, :] = 0.0 if shape == (3, 2) else scores[1, 0, :]
    with pytest.raises(fy.FenchelError) as error:
        Assignment().argmax(scores)
    assert str(error.value) == (
        "Assignment: expected a finite score for every row of the shorter side in some one-to-one "
        "assignment, but instance 1 of the batch has none; mask fewer pairs."
    )


def test_bad_scores_are_refused() -> None:
    with pytest.raises(fy.FenchelError, match="instance 1 of the batch has NaN"):
        Assignment().argmax(torch.tensor([[[0.0]], [[math.nan]]]))
    with pytest.raises(fy.FenchelError, match=r"has \+inf"):
        Assignment().argmax(torch.tensor([[math.inf]]))
    with pytest.raises(fy.FenchelError, match=r"shape \(\*batch, rows, columns\)"):
        Assignment().argmax(torch.zeros(3))
    with pytest.raises(fy.FenchelError, match="expected `lengths` between 1 and"):
        Assignment().argmax(torch.zeros(3, 3), lengths=torch.tensor([4, 3]))


def test_has_no_log_partition() -> None:
    problem = Assignment().problem("test", torch.zeros(2, 2))
    for smoothed in (Assignment().smoothed_max, Assignment().smoothed_argmax):
        with pytest.raises(fy.FenchelError) as error:
            smoothed(problem, "entropy", 1.0)
        assert str(error.value) == (
            "Assignment: summing over all assignments is #P-hard (it is a permanent), so there is "
            "no smoothing 'entropy'; use SparseMAP, which needs only the best assignment, or "
            "`sinkhorn` for an entropic relaxation."
        )
