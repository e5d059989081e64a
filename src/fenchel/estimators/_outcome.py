"""What a solver hands back, and what it says while it runs and when it stops early."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

from fenchel.estimators._sklearn import ConvergenceWarning


@dataclass(frozen=True)
class Outcome:
    """Weights (features, classes), intercept (classes), and how far the solver got."""

    W: Any
    b: Any
    iterations: int
    gap: float
    converged: bool
    reason: str = ""


class Progress:
    """A line on standard output, at most one a second; ``verbose=2`` prints every iteration."""

    def __init__(self, name: str, verbose: Any) -> None:
        self.name = name
        self.verbose = int(verbose)
        self._start = self._last = time.monotonic()

    def __call__(self, text: str, *, final: bool = False) -> None:
        now = time.monotonic()
        if self.verbose and (final or self.verbose > 1 or now - self._last >= 1.0):
            self._last = now
            print(f"{self.name}: {text}, {now - self._start:.1f} s", flush=True)


def warn_if_early(name: str, outcome: Outcome, tol: float) -> None:
    """Warn, with the gap and the remedy, of a solver that stopped before ``tol``."""
    if not outcome.converged:
        warnings.warn(
            f"{name}: {outcome.reason} after {outcome.iterations} iterations with a duality gap of "
            f"{outcome.gap:.2g} (tol={tol:g}); raise `max_iter`, scale the features of X, or lower "
            "`C`.",
            ConvergenceWarning,
            stacklevel=4,
        )
