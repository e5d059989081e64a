"""What a task hands to the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn


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
class Workload:
    """What to train on and for: examples with their lengths, and the caller's three functions."""

    examples: Sequence[Any]
    lengths: Sequence[int]
    collate: Callable[[list[Any]], TrainingBatch]
    validate: Callable[[nn.Module], Mapping[str, float]]
    loss: Callable[[nn.Module, Any], Tensor]
    extra: Mapping[str, Any]
    digest: str  # of the examples
