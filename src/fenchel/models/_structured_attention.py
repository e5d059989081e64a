"""Attention that chooses a structure over the source instead of single positions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from fenchel._checks import FenchelError
from fenchel.regularizers import SparseMAP
from fenchel.structures import KSubsets, Sequence, SequenceScores


class SubsetAttention(Module):
    r"""Attention to ``k`` positions together: the mean subset, divided by k, sums to 1.

    No position gets more than 1/k. A source of fewer than k positions is refused.

    Args:
        k: how many positions a subset has.
    """

    def __init__(self, k: int = 2) -> None:
        super().__init__()
        self.omega = SparseMAP(KSubsets(k))
        self.k = k

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights (…, S) of scores (…, S); mask is True where mass may go."""
        return self.omega.predict(scores, mask=mask) / self.k

    def extra_repr(self) -> str:
        return f"{self.k}"


class ChainAttention(Module):
    r"""Attention to any set of positions, with learned scores for neighbours that go together.

    Each position is in or out; a linear chain with the learned ``transitions`` (2, 2), indexed
    [from, to] with 1 = in, scores each pair of neighbours. The weight of a position is its share
    in the SparseMAP solution, between 0 and 1; weights need not sum to 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.omega = SparseMAP(Sequence(2))
        self.transitions = Parameter(torch.zeros(2, 2))

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights (…, S) of scores (…, S); mask is True where mass may go: a prefix of each row."""
        lengths = None
        if mask is not None:
            lengths = mask.sum(-1).expand(scores.shape[:-1])
            scores = scores.masked_fill(~mask, 0.0)  # behind the lengths; -inf times 0 is NaN
        emissions = torch.stack([torch.zeros_like(scores), scores], -1)
        parts = SequenceScores(emissions, self.transitions)
        return self.omega.predict(parts, lengths=lengths).emissions[..., 1]


def structured_attention(text: str | None) -> Module:
    """The module that follows ``"structured:"`` in a spec: ``subsets[:k]`` or ``chain``."""
    name, colon, rest = (text or "").partition(":")
    if name == "chain" and not colon:
        return ChainAttention()
    if name == "subsets" and (not colon or (rest.isdecimal() and len(rest) < 10)):
        return SubsetAttention(int(rest) if colon else 2)
    raise FenchelError(
        "normalizer: expected 'structured:subsets', 'structured:subsets:3' (of 3 positions) or "
        f"'structured:chain', but got 'structured:{text or ''}'."
    )
