"""Listing supports: order, caps, ties and half precision."""

from __future__ import annotations

import pytest
import torch

from fenchel.decoding._support import list_support


def entries(support):
    return list(zip(support.rows.tolist(), support.tokens.tolist(), strict=True))


def test_decreasing_with_ties_by_id():
    p = torch.tensor([[0.25, 0.0, 0.5, 0.25], [0.0, 1.0, 0.0, 0.0]])
    support = list_support("f", p, 2, None)
    assert entries(support) == [(0, 2), (0, 0), (0, 3), (1, 1)]
    assert support.probabilities.tolist() == [0.5, 0.25, 0.25, 1.0]
    assert support.size.tolist() == [3, 1] and support.rest.tolist() == [0, 0]
    assert support.starts.tolist() == [0, 3, 4]


def test_a_cap_keeps_the_first_of_equals_and_tells_the_rest():
    p = torch.tensor([[0.25] * 4, [0.0, 1.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]])
    support = list_support("f", p, 3, 2)
    assert entries(support) == [(0, 0), (0, 1), (1, 1), (2, 3), (2, 2)]
    assert support.size.tolist() == [4, 1, 4]
    assert support.rest.tolist() == pytest.approx([0.5, 0.0, 0.3])


@pytest.mark.parametrize("vocabulary", [4, 5, 300])
def test_the_edge_of_a_cap_among_equals(vocabulary):
    p = torch.full((3, vocabulary), 1 / vocabulary)
    support = list_support("f", p, 3, 3)
    assert support.tokens.tolist() == [0, 1, 2] * 3
    assert support.size.tolist() == [vocabulary] * 3
    assert support.rest.tolist() == pytest.approx([1 - 3 / vocabulary] * 3, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("most", [None, 7])
def test_any_dtype_against_a_sort(dtype, most, rng):
    p = torch.randn(9, 50, generator=rng).mul(3).softmax(-1).to(dtype)
    p[p < 0.01] = 0
    p /= p.sum(1, keepdim=True)
    support = list_support("f", p, 9, most)
    for row in range(9):
        truth = sorted((-float(v), i) for i, v in enumerate(p[row].tolist()) if v > 0)
        mine = slice(*support.starts[row : row + 2].tolist())
        assert support.tokens[mine].tolist() == [i for _, i in truth[:most]]
        assert support.probabilities[mine].tolist() == [-v for v, _ in truth[:most]]
        assert int(support.size[row]) == len(truth)
        left = 0 if most is None else -sum(v for v, _ in truth[most:])
        assert float(support.rest[row]) == pytest.approx(left, abs=1e-6)


def test_rounding_above_one_does_not_raise_a_prefix():
    p = torch.tensor([[0.0, 1.0000001]])
    assert list_support("f", p, 1, None).probabilities.tolist() == [1.0]
