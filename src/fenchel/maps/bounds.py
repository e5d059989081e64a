"""A learned α stays between two bounds: α = low + (high − low) · σ(a), where a is the parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError, check_alpha

_MEANING = "(1 is softmax, 2 is sparsemax)"


@dataclass(frozen=True)
class Bounds:
    """Where a learned α may go. By default from softmax to sparsemax.

    Attributes:
        low: lower bound, above 0.
        high: upper bound, finite.
    """

    low: float = 1.0
    high: float = 2.0

    @classmethod
    def check(cls, name: str, low: Any, high: Any) -> Bounds:
        """Bounds that a user gave."""
        least = check_alpha(name, low, _MEANING, label="low")
        most = check_alpha(name, high, _MEANING, label="high")
        if not least < most < math.inf:
            raise FenchelError(
                f"{name}: expected `low` < `high` < inf, but got low={low:g}, high={high:g}."
            )
        return cls(least, most)

    def logit(self, name: str, alpha: float) -> float:
        """The parameter a at which α is ``alpha``, strictly inside the bounds."""
        if not self.low < alpha < self.high:
            raise FenchelError(
                f"{name}: a learned `alpha` must start strictly between low={self.low:g} and "
                f"high={self.high:g}; got {alpha:g}."
            )
        share = (alpha - self.low) / (self.high - self.low)
        return math.log(share / (1 - share))

    def alpha(self, logit: Tensor) -> Tensor:
        """The α of a parameter."""
        return self.low + (self.high - self.low) * logit.sigmoid()
