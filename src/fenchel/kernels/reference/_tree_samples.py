"""Random trees, head by head."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel.kernels._ops import smoothed
from fenchel.kernels._table import REFERENCE, implements


def register_samples(kind: str) -> None:
    """Enter draws of the trees of a kind into the table."""

    @implements(f"sample.{kind}", REFERENCE, alone=True)
    def sample(
        scores: Tensor,
        layout: tuple[int, ...],
        sizes: Tensor,
        n: int,
        generator: torch.Generator | None,
    ) -> Tensor:
        """The head of one word after the other, each from its marginals given those before."""
        count, words = scores.shape[0], layout[0]
        none = smoothed(kind, scores, layout, sizes, "entropy", 1.0, False)[0] == -math.inf
        if bool(none.any()):
            return torch.where(none.reshape(1, count, 1), -2, -1).expand(n, count, words)
        sizes, scores = sizes.repeat(n, 1), scores.repeat(n, 1)
        parts = torch.empty(len(scores), words, dtype=torch.int64)
        for word in range(words):
            own = slice(word * (words + 1), (word + 1) * (words + 1))
            _, mean = smoothed(kind, scores, layout, sizes, "entropy", 1.0, True)
            assert mean is not None
            there = sizes[:, 0] > word
            # Rounding may leave -1e-17 in the reference.
            shares = torch.where(there.unsqueeze(1), mean[:, own].clamp(min=0), 1.0)
            head = torch.multinomial(shares, 1, generator=generator)
            others = torch.arange(words + 1) != head
            scores[:, own] = torch.where(others & there.unsqueeze(1), -math.inf, scores[:, own])
            parts[:, word] = torch.where(there, word * (words + 1) + head[:, 0], -1)
        return parts.reshape(n, count, words)


register_samples("tree")
register_samples("projective_tree")
