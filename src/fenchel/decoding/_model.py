"""What search asks of a model, and checks that all searches share.

A model has a start, a step, and states whose rows can be selected.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from fenchel._checks import FenchelError


class State(Protocol):
    """What a model remembers of the prefixes it has read, one row per prefix."""

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


def check_model(name: str, model: Any) -> None:
    """Refuse what cannot be driven, and a model whose dropout would make a proof meaningless."""
    if not (callable(getattr(model, "start", None)) and callable(getattr(model, "step", None))):
        raise FenchelError(
            f"{name}: expected `model` with the methods `start` and `step`, but got "
            f"{type(model).__name__}."
        )
    if getattr(model, "training", False):
        raise FenchelError(
            f"{name}: expected `model` in evaluation mode, but it is in training mode; call "
            "`model.eval()` first."
        )


def check_source(name: str, source: Any, lengths: Any) -> list[int]:
    """Check the sources and their lengths, and return the lengths as ints."""
    check_rows(name, "source", source)
    if not isinstance(lengths, Tensor) or lengths.shape != source.shape[:1]:
        got = tuple(lengths.shape) if isinstance(lengths, Tensor) else type(lengths).__name__
        raise FenchelError(
            f"{name}: expected `source_lengths` to be a tensor of shape ({source.shape[0]},), one "
            f"length per source, but got {got}."
        )
    values = [int(value) for value in lengths.tolist()]
    if any(not 0 <= value <= source.shape[1] for value in values):
        raise FenchelError(
            f"{name}: expected `source_lengths` between 0 and {source.shape[1]}, the width of "
            f"`source`, but got {values}."
        )
    return values


def check_matching(name: str, label: str, rows: Any, source: Tensor) -> None:
    """Check a padded matrix of token ids with one row for each source."""
    check_rows(name, label, rows)
    if rows.shape[0] != source.shape[0]:
        raise FenchelError(
            f"{name}: expected `{label}` with {source.shape[0]} rows, as many as `source`, but got "
            f"{rows.shape[0]}."
        )


def check_rows(name: str, label: str, rows: Any) -> None:
    """Check a padded matrix of token ids."""
    if not isinstance(rows, Tensor) or rows.dim() != 2 or rows.dtype != torch.int64:
        got = (
            f"{rows.dtype} of shape {tuple(rows.shape)}"
            if isinstance(rows, Tensor)
            else type(rows).__name__
        )
        raise FenchelError(
            f"{name}: expected `{label}` to be an int64 tensor with one row per source, but got "
            f"{got}."
        )
