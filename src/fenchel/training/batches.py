"""What is trained on, in batches of similar length whose order (seed, epoch) alone decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from fenchel._checks import FenchelError
from fenchel._short import short


def bucketed_batches(
    lengths: Sequence[int],
    *,
    unit: str,
    size: int,
    window: int,
    seed: int,
    epoch: int,
) -> list[list[int]]:
    """The batches of one epoch, as indices of examples; each example is in exactly one.

    The examples are shuffled, cut into windows of ``window``, sorted by length within each, cut
    into batches, and the batches are shuffled. Nothing but the arguments decides the order, so a
    run that resumes in the middle of an epoch needs no state of a generator.

    Args:
        lengths: of each example, in tokens.
        unit: ``"sentences"``, a batch has at most ``size`` examples; or ``"tokens"``, its number
            of examples times its longest length, padding included, is at most ``size``. An
            example longer than that is a batch of its own.
        size: of a batch, in that unit.
        window: how many examples are sorted together: 1 sorts nothing.
        seed: of the run.
        epoch: any int.

    Example:
        >>> batches = bucketed_batches(
        ...     [3, 9, 3, 9], unit="tokens", size=18, window=4, seed=0, epoch=1
        ... )
        >>> sorted(sorted(batch) for batch in batches)
        [[0, 2], [1, 3]]
    """
    # A string seeds random.Random through SHA-512: the same on every platform and version.
    generator = random.Random(f"{seed} {epoch}")
    order = list(range(len(lengths)))
    generator.shuffle(order)
    batches: list[list[int]] = []
    for start in range(0, len(order), window):
        # The sort is stable, so that equal lengths stay shuffled.
        bucket = sorted(order[start : start + window], key=lengths.__getitem__)
        batches += _cut(bucket, lengths, unit, size)
    generator.shuffle(batches)
    return batches


def _cut(bucket: list[int], lengths: Sequence[int], unit: str, size: int) -> list[list[int]]:
    """Cut indices sorted by length into batches of at most ``size``."""
    if unit == "sentences":
        return [bucket[i : i + size] for i in range(0, len(bucket), size)]
    batches: list[list[int]] = []
    for index in bucket:
        # Sorted, so the newcomer is the longest and sets the padding.
        if batches and (len(batches[-1]) + 1) * lengths[index] <= size:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def check_lengths(lengths: Sequence[int]) -> None:
    """Check that there are examples, each with a positive int as its length."""
    if not lengths:
        raise FenchelError("Trainer: expected at least one training example, but there are none.")
    for index, length in enumerate(lengths):
        if not isinstance(length, int) or length < 1:
            raise FenchelError(
                f"Trainer: expected the length of each example to be an int of at least 1, but "
                f"got {short(length)} for example {index}."
            )


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
