"""What a model said along one output: the record that analysis, reports and pictures read.

During a search prefixes are a tree: each knows its parent and what the model said after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fenchel.decoding._support import Support


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


@dataclass(frozen=True, slots=True)
class StepRow:
    """What the model said after one prefix: a row of a step that was taken in a batch."""

    support: Support
    row: int
    attention: Tensor | None  # (n, S) on the CPU, of the whole step

    def take(
        self, token: int, probability: float, most: int | None, source_length: int
    ) -> TraceStep:
        """The step that takes ``token`` here."""
        row = self.row
        tokens, probabilities, starts = self.support.lists
        start, end = starts[row], starts[row + 1]
        stop = end if most is None else min(end, start + most)
        rest = float(self.support.rest[row]) + sum(probabilities[stop:end])
        attention = None
        if self.attention is not None:
            attention = tuple(self.attention[row, :source_length].tolist())
        return TraceStep(
            token,
            probability,
            tuple(tokens[start:stop]),
            tuple(probabilities[start:stop]),
            int(self.support.size[row]),
            rest,
            attention,
        )


@dataclass(slots=True, eq=False)
class Prefix:
    """A string read so far: its last token, and the prefix before it. The root has no token."""

    parent: Prefix | None
    token: int
    probability: float  # of the last token
    log_probability: float  # of the whole prefix
    length: int  # tokens so far, EOS not counted
    said: StepRow | None = None  # known once the prefix was expanded, if traces are wanted

    @staticmethod
    def root(bos: int) -> Prefix:
        """The empty prefix."""
        return Prefix(None, bos, 1.0, 0.0, 0)

    def then(self, token: int, probability: float, log_probability: float) -> Prefix:
        """This prefix and one more token."""
        return Prefix(self, token, probability, log_probability, self.length + 1)

    def end(self, eos: int, probability: float, log_probability: float) -> Prefix:
        """This prefix and EOS, which does not count."""
        return Prefix(self, eos, probability, log_probability, self.length)

    def tokens(self, finished: bool) -> tuple[int, ...]:
        """The tokens, without EOS if the prefix is ``finished`` by it."""
        found: list[int] = []
        node = self.parent if finished else self
        while node is not None and node.parent is not None:
            found.append(node.token)
            node = node.parent
        return tuple(reversed(found))

    def trace(self, finished: bool, most: int | None, source_length: int) -> Trace | None:
        """What the model said along the way; None if it was not kept."""
        steps: list[TraceStep] = []
        node = self
        while node.parent is not None:
            said = node.parent.said
            if said is None:
                return None
            steps.append(said.take(node.token, node.probability, most, source_length))
            node = node.parent
        return Trace(self.tokens(finished), tuple(reversed(steps)), finished)
