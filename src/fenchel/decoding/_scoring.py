"""What outputs are ranked by, and how well a prefix can still do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
