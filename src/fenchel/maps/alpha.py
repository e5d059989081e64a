"""The α of entmax: what it may be, and how one that is learned stays between two bounds.

A learned α is low + (high − low) · σ(a), where a is the parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.maps._entmax import ALPHA

__all__ = ["ALPHA", "Bounds"]


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
        least = replace(ALPHA, keyword="low").number(name, low)
        most = replace(ALPHA, keyword="high").number(name, high)
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
