"""The learning rate at each step, by torch's schedulers: cut on a plateau, warmed up and falling in
one of two ways, or constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.runs.train_config import TrainConfig


class Schedule:
    """Sets the learning rate of an optimizer.

    Args:
        optimizer: made with the learning rate of the config.
        config: says which schedule.
        step: updates made so far; the step alone decides, but for plateau.
    """

    def __init__(self, optimizer: Optimizer, config: TrainConfig, step: int = 0) -> None:
        self._optimizer = optimizer
        self._plateau: ReduceLROnPlateau | None = None
        self._by_step: LambdaLR | None = None
        if config.schedule == "plateau":
            # It is told verdicts, 0 for better and infinity for worse, of which no cut is too small
            # and each 0 is as good as the one before.
            self._plateau = ReduceLROnPlateau(
                optimizer,
                factor=config.plateau_factor,
                patience=config.plateau_patience,
                threshold=-1.0,
                threshold_mode="abs",
                eps=0.0,
            )
        else:
            share = _share(config)
            self._by_step = LambdaLR(optimizer, lambda more: share(step + more + 1))

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return float(self._optimizer.param_groups[0]["lr"])

    def updated(self) -> None:
        """Take note of an update."""
        if self._by_step is not None:
            self._by_step.step()

    def validated(self, improved: bool) -> None:
        """Take note of a validation."""
        if self._plateau is not None:
            self._plateau.step(0.0 if improved else math.inf)

    def state(self) -> dict[str, Any]:
        """What the step does not tell, as plain JSON."""
        if self._plateau is None:
            return {}
        return {"learning_rate": self.rate, "waited": self._plateau.num_bad_epochs}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that :meth:`state` returned."""
        if self._plateau is None:
            return
        rate, waited = state.get("learning_rate"), state.get("waited")
        good = isinstance(rate, float) and 0 <= rate < math.inf
        if not good or type(waited) is not int or not 0 <= waited <= self._plateau.patience:
            raise FenchelError(
                "checkpoint: expected the learning rate of the schedule plateau, but got "
                f"{short(dict(state))}; state.json is damaged."
            )
        self._plateau.num_bad_epochs = waited
        for group in self._optimizer.param_groups:
            group["lr"] = rate


def _share(config: TrainConfig) -> Callable[[int], float]:
    r"""What the learning rate is multiplied by at update :math:`t`, counted from 1.

    With :math:`w` steps of warm-up, and :math:`n` steps in all:

    .. math::
        \text{inverse\_sqrt: } \min\bigl(t / w,\; \sqrt{w / t}\bigr) \qquad
        \text{linear: } \min\bigl(t / w,\; (n + 1 - t) / (n + 1 - w)\bigr)

    The second is the best use of a fixed number of steps: the small steps at the end settle what
    the large ones have found.
    """
    warmup, steps = config.warmup_steps, config.max_steps
    if config.schedule == "inverse_sqrt":
        return lambda t: min(t / warmup, (warmup / t) ** 0.5)
    if config.schedule == "linear":
        assert steps is not None  # TrainConfig checks it
        end = steps + 1
        return lambda t: min(t / warmup, (end - min(t, end)) / max(end - warmup, 1))
    return lambda t: 1.0
