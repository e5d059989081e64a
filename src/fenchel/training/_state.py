"""Where a run is: everything but tensors, as plain JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fenchel._checks import FenchelError


@dataclass
class RunState:
    """What a resumed run needs to go on as if it had never stopped."""

    step: int = 0  # updates made
    epoch: int = 1  # the current one, counted from 1
    batch: int = 0  # batches of this epoch that are done
    tokens: int = 0  # target tokens seen
    train_seconds: float = 0.0  # without validation and checkpoints
    elapsed: float = 0.0  # with them, over all sessions
    window_loss: float = 0.0  # since the last log line: sum over tokens,
    window_tokens: int = 0  # their number,
    window_seconds: float = 0.0  # and the time
    validated_step: int = -1  # the step of the last validation
    best: float | None = None  # value of the metric
    best_step: int | None = None
    waited: int = 0  # validations in a row without improvement
    metrics: dict[str, float | None] = field(default_factory=dict)  # of the last validation
    schedule: dict[str, Any] = field(default_factory=dict)
    records_bytes: int = 0  # how long metrics.jsonl was

    @classmethod
    def from_json(cls, state: Mapping[str, Any], path: object) -> RunState:
        """Read what :func:`dataclasses.asdict` wrote."""
        names = [f.name for f in dataclasses.fields(cls)]
        missing = [name for name in names if name not in state]
        if missing:
            raise FenchelError(
                f"{path}: expected a training state, but it lacks {', '.join(missing)}; the file "
                f"is damaged."
            )
        return cls(**{name: state[name] for name in names})
