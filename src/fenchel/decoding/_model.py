"""What search asks of a model: a start, a step, and states whose rows can be selected."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class State(Protocol):
    """What a model remembers of the prefixes it has read, one row a prefix."""

    def select(self, index: Tensor) -> State:
        """The rows ``index`` (m,) int64 of this state: reordered, repeated or dropped."""
        ...


class Step(Protocol):
    """What a model says after one more token."""

    @property
    def probabilities(self) -> Tensor:
        """(n, V) of the next token, exact zeros where the model gives none."""
        ...

    @property
    def state(self) -> Any:
        """The :class:`State` after the token."""
        ...

    @property
    def attention(self) -> Tensor | None:
        """(n, S) weights over the source, or None."""
        ...


class StepModel(Protocol):
    """A model that search can drive. A model in training mode is refused."""

    def start(self, source: Tensor, source_lengths: Tensor) -> Any:
        """The :class:`State` of one empty prefix for each row of ``source`` (B, S)."""
        ...

    def step(self, state: Any, tokens: Tensor) -> Step:
        """Feed ``tokens`` (n,) int64, one to each row of the state; the first ones are BOS."""
        ...
