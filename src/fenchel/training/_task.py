"""What a task hands to the loop, and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from fenchel.training._state import RunState


class TrainingBatch(Protocol):
    """What the loop needs to know of a batch."""

    @property
    def tokens(self) -> int:
        """How many target tokens it has, padding not counted."""

    def to(self, device: Any) -> Any:
        """The same batch on a device."""


def pair_length(pair: Any) -> int:
    """The longer side of a (source, target) pair, the target with its end mark."""
    return max(len(pair[0]), len(pair[1]) + 1)


def model_loss(model: nn.Module, batch: Any) -> Tensor:
    """``model.loss(batch)``."""
    loss: Tensor = model.loss(batch)  # type: ignore[operator]
    return loss


@dataclass(frozen=True)
class Task:
    """Examples with their lengths, and the task's three functions."""

    examples: Sequence[Any]
    lengths: Sequence[int]
    collate: Callable[[list[Any]], TrainingBatch]
    validate: Callable[[nn.Module], Mapping[str, float]]
    loss: Callable[[nn.Module, Any], Tensor]
    extra: Mapping[str, Any]
    digest: str  # of the examples


@dataclass(frozen=True)
class TrainResult:
    """How a run ended.

    Attributes:
        reason: ``"max_epochs"``, ``"max_steps"``, ``"max_minutes"``, ``"patience"`` or
            ``"interrupted"``.
        step: updates made.
        epoch: the last one, counted from 1.
        best: the best value of the validation metric.
        best_step: the step it was reached at; the checkpoint ``"best"`` has its weights.
        metrics: of the last validation.
        tokens_per_second: of training alone, over the whole run.
        seconds: with validation, over all sessions.
    """

    reason: str
    step: int
    epoch: int
    best: float | None
    best_step: int | None
    metrics: Mapping[str, float | None]
    tokens_per_second: float
    seconds: float


def result_of(state: RunState, reason: str, seconds: float) -> TrainResult:
    """The result of a run that has come to this state."""
    return TrainResult(
        reason=reason,
        step=state.step,
        epoch=state.epoch,
        best=state.best,
        best_step=state.best_step,
        metrics=dict(state.metrics),
        tokens_per_second=state.tokens / state.train_seconds if state.train_seconds else 0.0,
        seconds=seconds,
    )
