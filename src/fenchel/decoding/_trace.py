"""What a model said along one output: the record that analysis, reports and pictures read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TraceStep:
    """One step: the token taken, and what else the model held possible there.

    Attributes:
        token: the token taken (EOS at the end of a finished output).
        probability: what the model gave it; 0 is possible in forced decoding.
        support: ids of tokens with p > 0, the likeliest first.
        probabilities: theirs.
        support_size: how many tokens have p > 0; more than listed if the list was capped.
        rest: the mass of those that are not listed.
        attention: weights over the source's positions, or None.
    """

    token: int
    probability: float
    support: tuple[int, ...]
    probabilities: tuple[float, ...]
    support_size: int
    rest: float
    attention: tuple[float, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {
            "token": self.token,
            "probability": self.probability,
            "support": list(self.support),
            "probabilities": list(self.probabilities),
            "support_size": self.support_size,
            "rest": self.rest,
            "attention": None if self.attention is None else list(self.attention),
        }

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> TraceStep:
        """The inverse of :meth:`to_dict`."""
        attention = fields["attention"]
        return TraceStep(
            fields["token"],
            fields["probability"],
            tuple(fields["support"]),
            tuple(fields["probabilities"]),
            fields["support_size"],
            fields["rest"],
            None if attention is None else tuple(attention),
        )


@dataclass(frozen=True)
class Trace:
    """The steps of one output.

    Attributes:
        tokens: the output, without EOS.
        steps: one a token, and one for EOS if ``finished``.
        finished: whether the output ends with EOS.

    Example:
        >>> step = TraceStep(2, 0.75, (2, 5), (0.75, 0.25), 2, 0.0)
        >>> trace = Trace((), (step,), True)
        >>> trace.probability
        0.75
        >>> Trace.from_dict(trace.to_dict()) == trace
        True
    """

    tokens: tuple[int, ...]
    steps: tuple[TraceStep, ...]
    finished: bool

    @property
    def log_probability(self) -> float:
        """Of the tokens taken; ``-inf`` as soon as one of them has p = 0."""
        if any(step.probability == 0 for step in self.steps):
            return -math.inf
        return sum((math.log(step.probability) for step in self.steps), 0.0)

    @property
    def probability(self) -> float:
        """Of the tokens taken."""
        return math.exp(self.log_probability)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {
            "tokens": list(self.tokens),
            "steps": [step.to_dict() for step in self.steps],
            "finished": self.finished,
        }

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Trace:
        """The inverse of :meth:`to_dict`."""
        steps = tuple(TraceStep.from_dict(step) for step in fields["steps"])
        return Trace(tuple(fields["tokens"]), steps, fields["finished"])
