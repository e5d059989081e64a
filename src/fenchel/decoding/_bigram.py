"""The smallest model there is to search in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel._checks import FenchelError


@dataclass(frozen=True)
class BigramState:
    """Nothing to remember: the token fed is all there is to know."""

    def select(self, index: Tensor) -> BigramState:
        """Itself."""
        return self


@dataclass(frozen=True)
class BigramStep:
    """A row of the table for each token fed."""

    probabilities: Tensor
    state: BigramState
    attention: Tensor | None = None


class Bigram:
    """A model whose next token depends on the last one only, whatever the source.

    It is there for examples, for trying out a search, and for tests.

    Args:
        table: for each token the probabilities of those that can follow it. A token that is not a
            key is followed by EOS.
        vocabulary: how many tokens there are; None: as many as the table needs.
        eos: the token that ends an output.

    Example:
        >>> model = Bigram({1: {3: 0.75, 4: 0.25}, 3: {5: 0.5, 2: 0.5}})
        >>> state = model.start(torch.zeros(1, 1), torch.ones(1))
        >>> model.step(state, torch.tensor([1])).probabilities
        tensor([[0.0000, 0.0000, 0.0000, 0.7500, 0.2500, 0.0000]])
    """

    def __init__(
        self,
        table: Mapping[int, Mapping[int, float]],
        vocabulary: int | None = None,
        eos: int = 2,
    ) -> None:
        needed = 1 + max([eos, *table, *(token for row in table.values() for token in row)])
        size = needed if vocabulary is None else vocabulary
        if size < needed:
            raise FenchelError(
                f"Bigram: expected `vocabulary` of at least {needed} for this table, but got "
                f"{vocabulary}."
            )
        self.table = torch.zeros(size, size)
        for token in range(size):
            for following, probability in table.get(token, {eos: 1.0}).items():
                self.table[token, following] = probability

    def start(self, source: Tensor, source_lengths: Tensor) -> BigramState:
        """The same for every source."""
        return BigramState()

    def step(self, state: BigramState, tokens: Tensor) -> BigramStep:
        """The rows of ``tokens``."""
        return BigramStep(self.table.to(tokens.device)[tokens], state)
