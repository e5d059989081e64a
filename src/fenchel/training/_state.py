"""Where a run is: everything but tensors, as plain JSON; what it counts, and how it ends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.runs import Checkpoint
from fenchel.runs.train_config import TrainConfig
from fenchel.runs.typed import build


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
_JUDGEMENT = ("metric", "mode")


def judge(state: RunState, config: TrainConfig, value: float) -> tuple[bool, bool]:
    """Compare the metric with the best so far, and take note of it in ``state``.

    Returns:
        Whether it is better, and whether it is a failure: no better, of a metric that has moved.
        Accuracy is 0 at first however well a small model learns; as long as it has never been
        anything else it says nothing, and neither the schedule nor ``patience`` should listen.
    """
    sign = 1.0 if config.mode == "max" else -1.0
    # A NaN is never better, and anything is better than nothing.
    better = not math.isnan(value) and (state.best is None or sign * value > sign * state.best)
    if state.validated_step >= 0 and value != state.best:
        state.moved = True
    if better:
        state.best, state.best_step = value, state.step
    failed = state.moved and not better
    state.waited = 0 if better else state.waited + failed
    state.validated_step = state.step
    return better, failed


def check_same_run(checkpoint: Checkpoint, config: Mapping[str, Any], data: str) -> None:
    """Check that a checkpoint is of a run with this data and this config, as far as it matters.

    ``config`` has those fields only that a resumed run must not change, ``data`` is the digest of
    the training examples.
    """
    was = checkpoint.state.get("config", {})
    # As long as nothing was validated, what to validate by has decided nothing yet.
    free = _JUDGEMENT if checkpoint.state.get("validated_step") == -1 else ()
    for name, value in config.items():
        value = list(value) if isinstance(value, tuple) else value
        if was.get(name) != value and name not in free:
            raise FenchelError(
                f"{checkpoint.path}: expected to resume with {name} = {short(was.get(name))} as "
                f"the run was started, but got {short(value)}; use another directory to change it."
            )
    if checkpoint.state.get("data") != data:
        raise FenchelError(
            f"{checkpoint.path}: expected the training data that the run was started with, but "
            f"the examples are others or in another order; start a new run in another directory."
        )


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
