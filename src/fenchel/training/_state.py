"""Where a run is: everything but tensors, as plain JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.training._typed import build


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
    first_loss: float | None = None  # of the first step
    moved: bool = False  # whether the metric was ever another than at the first validation

    @classmethod
    def from_json(cls, state: Mapping[str, Any], path: object) -> RunState:
        """Read what :func:`dataclasses.asdict` wrote, and check that it can be so."""
        names = [f.name for f in dataclasses.fields(cls)]
        missing = [name for name in names if name not in state]
        if missing:
            raise FenchelError(
                f"{path}: expected a training state, but it lacks {', '.join(missing)}; the file "
                f"is damaged."
            )
        found: RunState = build(cls, {name: state[name] for name in names}, str(path))
        for name in names:
            value, least = getattr(found, name), _LEAST.get(name, 0)
            finite = not isinstance(value, float) or math.isfinite(value)
            if (
                name != "best"
                and isinstance(value, int | float)
                and not (finite and value >= least)
            ):
                raise FenchelError(
                    f"{path}: expected `{name}` of at least {least}, but got {short(value)}; the "
                    f"file is damaged."
                )
        return found


_LEAST = {"epoch": 1, "validated_step": -1, "window_loss": -math.inf, "first_loss": -math.inf}
