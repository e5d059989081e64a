"""Prefixes as a tree: each knows its parent and what the model said after it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fenchel.decoding._support import Support
from fenchel.decoding._trace import Trace, TraceStep


@dataclass(frozen=True, slots=True)
class Site:
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
    site: Site | None = None  # known once the prefix was expanded, if traces are wanted

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
            site = node.parent.site
            if site is None:
                return None
            steps.append(site.take(node.token, node.probability, most, source_length))
            node = node.parent
        return Trace(self.tokens(finished), tuple(reversed(steps)), finished)
