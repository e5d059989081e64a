"""Whether a validation was an improvement, and whether one that was not counts against the run."""

from __future__ import annotations

import math

from fenchel.training._config import TrainConfig
from fenchel.training._state import RunState


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
