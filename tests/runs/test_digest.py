"""Training examples are told apart by all that is in them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy
import torch

from fenchel.runs.digest import digest_examples


@dataclass
class Pair:
    source: list[int]
    weight: float


class Opaque:
    pass


def digest(*examples, length=1):
    return digest_examples(examples, [length] * len(examples))


def test_other_content_is_another_digest():
    different = [
        ([1, 2], [3]), ([1], [2, 3]), ([2, 1], [3]), ([1, 2, 3], []), [1, 2, 3], ["a", "b"],
        ["ab"], ["a", "c"], {"a": 1}, {"a": 2}, b"a", b"b", None, 1.5, [[1, "x"]], [10**30],
        torch.tensor([1, 2]), torch.tensor([1, 3]), torch.tensor([1.0, 2.0]),
        torch.tensor([[1, 2]]), torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
        numpy.array([1, 2]), numpy.array([1.0, 2.0]), Pair([1], 0.5), Pair([1], 0.6), Opaque(),
    ]  # fmt: skip
    found = [digest(example) for example in different]
    for (a, one), (b, other) in combinations(zip(different, found, strict=True), 2):
        assert one != other, (a, b)


def test_order_and_lengths_count():
    assert digest("a", "b") != digest("b", "a")
    assert digest("a") != digest("a", length=2)


def test_the_same_content_is_the_same_digest():
    assert digest(Opaque(), [torch.ones(2)]) == digest(Opaque(), [torch.ones(2)])
    loop: list = []
    loop.append(loop)
    assert digest(loop) == digest(loop)
