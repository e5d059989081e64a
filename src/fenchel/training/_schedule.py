"""The learning rate at each step: halved on a plateau, warmed up and falling in one of two ways, or
constant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.runs import TrainConfig


class Schedule(Protocol):
    """The learning rate as a function of the step and of how validation went."""

    def rate(self, step: int) -> float:
        """The learning rate of update number ``step``, counted from 1."""

    def validated(self, improved: bool) -> None:
        """Take note of a validation."""

    def state(self) -> dict[str, Any]:
        """What has changed since the start, as plain JSON."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that :meth:`state` returned."""


class _Stateless:
    """A schedule that the step alone decides."""

    def validated(self, improved: bool) -> None:
        """Validation changes nothing."""

    def state(self) -> dict[str, Any]:
        """Nothing to remember."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""


@dataclass(frozen=True)
class Constant(_Stateless):
    """The same learning rate at every step."""

    learning_rate: float

    def rate(self, step: int) -> float:
        """``learning_rate``."""
        return self.learning_rate


@dataclass(frozen=True)
class InverseSqrt(_Stateless):
    r"""Linear warm-up over :math:`w` steps, then a fall with the square root of the step.

    .. math:: \eta_t = \eta \min\bigl(t / w,\; \sqrt{w / t}\bigr)
    """

    learning_rate: float
    warmup_steps: int

    def rate(self, step: int) -> float:
        """``learning_rate`` at step ``warmup_steps``, less before and after."""
        rise, fall = step / self.warmup_steps, (self.warmup_steps / step) ** 0.5
        return self.learning_rate * min(rise, fall)


@dataclass(frozen=True)
class Linear(_Stateless):
    r"""Linear warm-up over :math:`w` steps, then a straight fall to 0 after the last, :math:`n`.

    .. math:: \eta_t = \eta \min\bigl(t / w,\; (n + 1 - t) / (n + 1 - w)\bigr)

    The best use of a fixed number of steps: the small steps at the end settle what the large ones
    have found.
    """

    learning_rate: float
    warmup_steps: int
    max_steps: int

    def rate(self, step: int) -> float:
        """``learning_rate`` at step ``warmup_steps``, less before and after; never below 0."""
        left = self.max_steps + 1 - min(step, self.max_steps + 1)
        fall = left / max(self.max_steps + 1 - self.warmup_steps, 1)
        return self.learning_rate * min(step / self.warmup_steps, fall)


@dataclass
class Plateau:
    """Multiply by ``factor`` when more than ``patience`` validations in a row did not improve."""

    learning_rate: float
    factor: float
    patience: int
    waited: int = 0

    def rate(self, step: int) -> float:
        """The learning rate after all cuts so far."""
        return self.learning_rate

    def validated(self, improved: bool) -> None:
        """Count a validation without improvement, and cut when there were too many."""
        self.waited = 0 if improved else self.waited + 1
        if self.waited > self.patience:
            self.learning_rate *= self.factor
            self.waited = 0

    def state(self) -> dict[str, Any]:
        """The learning rate, and how long it has waited for an improvement."""
        return {name: asdict(self)[name] for name in ("learning_rate", "waited")}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned."""
        rate, waited = state.get("learning_rate"), state.get("waited")
        good = isinstance(rate, float) and 0 <= rate < math.inf
        if not good or type(waited) is not int or not 0 <= waited <= self.patience:
            raise FenchelError(
                "checkpoint: expected the learning rate of the schedule plateau, but got "
                f"{short(dict(state))}; state.json is damaged."
            )
        self.learning_rate, self.waited = float(rate), waited  # type: ignore[arg-type]


def make_schedule(config: TrainConfig) -> Schedule:
    """The schedule that a config asks for."""
    if config.schedule == "plateau":
        return Plateau(config.learning_rate, config.plateau_factor, config.plateau_patience)
    if config.schedule == "inverse_sqrt":
        return InverseSqrt(config.learning_rate, config.warmup_steps)
    if config.schedule == "linear":
        assert config.max_steps is not None  # TrainConfig checks it
        return Linear(config.learning_rate, config.warmup_steps, config.max_steps)
    return Constant(config.learning_rate)
