"""What outputs are ranked by, how well a prefix can still do, and what a search has proved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fenchel._checks import FenchelError, check_number

_MOST = 10.0


@dataclass(frozen=True)
class Scoring:
    """Log-probability over a penalty of length, ((5 + length) / 6)^a; a = 0 leaves it alone."""

    length_penalty: float
    max_length: int

    def score(self, log_probability: float, length: int) -> float:
        """Of a finished output of ``length`` tokens, EOS not counted."""
        if self.length_penalty == 0:
            return log_probability
        return log_probability / ((5.0 + length) / 6.0) ** self.length_penalty

    def bound(self, log_probability: float) -> float:
        """At least the score of every output of at most ``max_length`` tokens with this prefix.

        Log-probabilities only fall, and none is above 0, so the largest divisor is the kindest.
        """
        return self.score(log_probability, self.max_length)


def check_scoring(name: str, length_penalty: Any, max_length: int) -> Scoring:
    """Check the exponent of the penalty."""
    penalty = check_number(name, "length_penalty", length_penalty, 0, "(0 is no penalty)")
    if penalty > _MOST:
        raise FenchelError(
            f"{name}: `length_penalty` must be at most {_MOST:g} (0 to 2 is usual); got "
            f"{length_penalty!r}."
        )
    return Scoring(penalty, max_length)


Kind = Literal["exhaustive", "proved best", "none"]


@dataclass(frozen=True)
class Certificate:
    """What a search has proved.

    Attributes:
        kind: ``"exhaustive"``: every output with p > 0 was found, and their masses sum to 1;
            ``"proved best"``: none that was not found scores above the best one that was;
            ``"none"``: neither is known.
        gap: how much better than the best output found another one can still be, as a
            difference of scores (log-probabilities, if lengths are not penalised). 0 for the first
            two kinds, ``inf`` if nothing was found.
        mass: probability of all outputs found, also of those beyond ``nbest``.
        proved: how many outputs, from the best on, are known to be the best ones (up to ties).
        reason: a sentence for people.

    Example:
        >>> Certificate("none", 0.5, 0.25, 0, "A pruned prefix may be better.").certain
        False
    """

    kind: Kind
    gap: float
    mass: float
    proved: int
    reason: str

    @property
    def certain(self) -> bool:
        """Whether the best output is known to be the best one."""
        return self.kind != "none"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which has no infinity: an infinite gap is None."""
        gap = self.gap if math.isfinite(self.gap) else None
        return {
            "kind": self.kind,
            "gap": gap,
            "mass": self.mass,
            "proved": self.proved,
            "reason": self.reason,
        }

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Certificate:
        """The inverse of :meth:`to_dict`."""
        gap = math.inf if fields["gap"] is None else fields["gap"]
        return Certificate(fields["kind"], gap, fields["mass"], fields["proved"], fields["reason"])


@dataclass
class Missed:
    """The likeliest prefixes that a search let go of, as log-probabilities; -inf is none.

    Every output that was not found has one of them as its prefix, or one that is less likely.
    """

    pruned: float = -math.inf  # there was no room for it
    cut: float = -math.inf  # it is longer than allowed
    open: float = -math.inf  # it was there to be expanded when the search stopped

    @property
    def nothing(self) -> bool:
        """Whether no prefix at all was let go of."""
        return max(self.pruned, self.cut, self.open) == -math.inf


def certify(
    scores: Sequence[float], mass: float, missed: Missed, scoring: Scoring, remedy: str
) -> Certificate:
    """The certificate of a search that found outputs with ``scores``, in decreasing order.

    ``remedy`` says what to do about prefixes that were pruned or left open.
    """
    if missed.nothing:
        what = "the one output" if len(scores) == 1 else f"all {len(scores)} outputs"
        reason = f"Search found {what} with probability above 0."
        return Certificate("exhaustive", 0.0, mass, len(scores), reason)
    penalised = scoring.length_penalty > 0
    # Under a penalty, an endless string could score as high as 0: the claim is about those that
    # are not too long, and what was cut is none of them.
    cut = -math.inf if penalised else missed.cut
    left = max(missed.pruned, missed.open)
    prefix = max(left, cut)
    bound = -math.inf if prefix == -math.inf else scoring.bound(prefix)
    limit = f" of at most {scoring.max_length} tokens" if penalised else ""
    action = "raise `max_length`" if missed.cut > left else remedy
    if not scores:
        when = f"within {scoring.max_length} tokens" if missed.cut > left else "so far"
        return Certificate("none", math.inf, mass, 0, f"No output ended {when}; {action}.")
    proved = sum(score >= bound for score in scores)
    if proved:
        reason = f"No output{limit} that was not found can score above the best one."
        return Certificate("proved best", 0.0, mass, proved, reason)
    gap = bound - scores[0]
    action = "raise `max_length`" if cut > left else remedy
    reason = f"An output{limit} that was not found may score higher by at most {gap:.4g}; {action}."
    return Certificate("none", gap, mass, 0, reason)
