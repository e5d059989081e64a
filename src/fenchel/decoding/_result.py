"""Outputs of a search, and what is known about them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fenchel.decoding._certificate import Certificate, Missed, Scoring, certify
from fenchel.decoding._trace import Prefix, Trace


@dataclass(frozen=True)
class Hypothesis:
    """One output.

    Attributes:
        tokens: its tokens, without EOS.
        log_probability: of the tokens, and of EOS if ``finished``; in float64.
        score: what it is ranked by: ``log_probability``, over the penalty of its length if any.
        finished: whether it ends with EOS. One that does not was cut at the greatest length.
        trace: what the model said along the way, or None if traces were not asked for.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool
    trace: Trace | None = None

    @property
    def probability(self) -> float:
        """exp of ``log_probability``."""
        return math.exp(self.log_probability)

    @property
    def length(self) -> int:
        """The number of tokens, EOS not counted."""
        return len(self.tokens)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {
            "tokens": list(self.tokens),
            "probability": self.probability,
            "log_probability": self.log_probability,
            "score": self.score,
            "finished": self.finished,
            "trace": None if self.trace is None else self.trace.to_dict(),
        }

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Hypothesis:
        """The inverse of :meth:`to_dict`."""
        return Hypothesis(
            tuple(fields["tokens"]),
            fields["log_probability"],
            fields["score"],
            fields["finished"],
            None if fields["trace"] is None else Trace.from_dict(fields["trace"]),
        )


@dataclass(frozen=True)
class SearchResult:
    """What a search found for one source.

    Attributes:
        hypotheses: the best first; never empty. If no output ended in time these are the
            likeliest unfinished ones.
        certificate: what is proved about them.
        found: how many finished outputs were found; at most ``nbest`` are in ``hypotheses``.
        expanded: how many prefixes the model was asked to continue.
    """

    hypotheses: tuple[Hypothesis, ...]
    certificate: Certificate
    found: int
    expanded: int

    @property
    def best(self) -> Hypothesis:
        """The first of the hypotheses."""
        return self.hypotheses[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {
            "hypotheses": [hypothesis.to_dict() for hypothesis in self.hypotheses],
            "certificate": self.certificate.to_dict(),
            "found": self.found,
            "expanded": self.expanded,
        }

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> SearchResult:
        """The inverse of :meth:`to_dict`."""
        return SearchResult(
            tuple(Hypothesis.from_dict(each) for each in fields["hypotheses"]),
            Certificate.from_dict(fields["certificate"]),
            fields["found"],
            fields["expanded"],
        )


class Record:
    """What the search of one source has found and missed so far."""

    def __init__(self, scoring: Scoring, nbest: int | None, source_length: int) -> None:
        self.scoring = scoring
        self.nbest = nbest
        self.source_length = source_length
        self.finished: list[tuple[float, Prefix]] = []  # in decreasing order of scores
        self.unfinished: list[Prefix] = []  # cut at the greatest length
        self.missed = Missed()
        self.expanded = 0

    def finish(self, prefix: Prefix) -> None:
        """Add an output that ended. Of equal scores the one that was found first stays first."""
        score = self.scoring.score(prefix.log_probability, prefix.length)
        bisect.insort(self.finished, (score, prefix), key=lambda entry: -entry[0])

    def settled_by(self, log_probability: float) -> bool:
        """Whether no prefix of at most this log-probability can change the n best."""
        if self.nbest is None or len(self.finished) < self.nbest:
            return False
        return self.finished[self.nbest - 1][0] >= self.scoring.bound(log_probability)

    @property
    def mass(self) -> float:
        """Of everything finished."""
        return math.fsum(math.exp(prefix.log_probability) for _, prefix in self.finished)

    def result(self, most: int | None, remedy: str) -> SearchResult:
        """Freeze what is known."""
        finished = bool(self.finished)
        unfinished = sorted(self.unfinished, key=lambda prefix: -prefix.log_probability)
        chosen = [prefix for _, prefix in self.finished] if finished else unfinished
        hypotheses = tuple(
            Hypothesis(
                prefix.tokens(finished),
                prefix.log_probability,
                self.scoring.score(prefix.log_probability, prefix.length),
                finished,
                prefix.trace(finished, most, self.source_length),
            )
            for prefix in chosen[: self.nbest]
        )
        scores = [score for score, _ in self.finished]
        certificate = certify(scores, self.mass, self.missed, self.scoring, remedy)
        return SearchResult(hypotheses, certificate, len(scores), self.expanded)
