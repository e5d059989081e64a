"""Draws and best lists of subsets against all of them."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from tests.structures.case import Refused, case, forbid, mask
from tests.structures.members import members_of

LENGTHS = torch.tensor([5, 4, 5])

CASES = [
    case("one", fy.OneOf(), (3, 4)),
    case("one-single", fy.OneOf(), (5,)),
    case("one-1", fy.OneOf(), (2, 1)),
    case("one-lengths", fy.OneOf(), (3, 4), lengths=torch.tensor([4, 1, 3])),
    case("one-mask", fy.OneOf(), (2, 4), mask=mask(2, 4, off=[(0, 1), (1, 0), (1, 3)])),
    case("subsets", fy.KSubsets(2), (2, 2, 4)),
    case("subsets-lengths", fy.KSubsets(2), (3, 5), lengths=torch.tensor([5, 2, 3])),
    forbid(case("subsets-inf", fy.KSubsets(3), (2, 5)), 0, (0, 1), (1, 4)),
]
SOLVED = [case("one of", fy.OneOf(), (2, 6)), case("three of", fy.KSubsets(3), (2, 7))]
FACES = [case("subsets-12", fy.KSubsets(4), (1, 12))]
REFUSED = [
    Refused(
        fy.OneOf(),
        torch.zeros(2, 3),
        "to hold the indices of the chosen items, an integer tensor of shape (2,)",
        (2,),
    )
]


def scores(rng) -> torch.Tensor:
    x = torch.randn(3, 5, generator=rng, dtype=torch.float64)
    x[1, 2] = -math.inf
    x[1, 4] = math.nan  # behind the length
    x[2] = 1.0  # ties
    return x


def members(k: int, x: torch.Tensor, length: int) -> dict[tuple[int, ...], float]:
    """Every subset with a finite score, and the score."""
    found = {}
    for parts in members_of(fy.KSubsets(k), length):
        total = math.fsum(x[list(parts)].tolist())
        if total > -math.inf:
            found[parts] = total
    return found


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_best_are_in_order_and_all_there(k, rng):
    x = scores(rng)
    found, logs = fy.Marginals(fy.KSubsets(k), 0.7).k_best(x, 11, lengths=LENGTHS)
    for row in range(3):
        truth = members(k, x[row], int(LENGTHS[row]))
        total = torch.tensor(list(truth.values())).double().div(0.7).logsumexp(0)
        wanted = sorted(truth.values(), reverse=True)
        assert (logs[row, len(wanted) :] == -math.inf).all()
        for rank, value in enumerate(wanted):
            assert float(logs[row, rank]) == pytest.approx(value / 0.7 - float(total), abs=1e-6)
            parts = tuple(found[rank][row].nonzero().flatten().tolist())
            assert truth.pop(parts) == pytest.approx(value)  # each of them once
        assert all(found[rank][row].sum() == 0 for rank in range(len(wanted), 11))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_draws_come_by_their_probability(k, rng):
    x = scores(rng)
    omega = fy.Marginals(fy.KSubsets(k), 0.7)
    drawn = torch.stack(omega.sample(x, 4000, lengths=LENGTHS, generator=rng))
    assert (drawn.sum(-1) == k).all() and ((drawn == 0) | (drawn == 1)).all()
    for row in range(3):
        truth = members(k, x[row], int(LENGTHS[row]))
        total = torch.tensor(list(truth.values())).double().div(0.7).logsumexp(0)
        for parts, value in truth.items():
            share = (drawn[:, row, list(parts)].sum(-1) == k).double().mean()
            wanted = math.exp(value / 0.7 - float(total))
            assert abs(float(share) - wanted) < 5 * math.sqrt(wanted * (1 - wanted) / 4000) + 1e-9


def test_the_generator_decides(rng):
    omega = fy.Marginals(fy.KSubsets(2))
    draw = [
        torch.stack(omega.sample(torch.zeros(9), 5, generator=torch.Generator().manual_seed(seed)))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(draw[0], draw[1]) and not torch.equal(draw[0], draw[2])
