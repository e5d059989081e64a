"""Arguments that every iterative solver has."""

from __future__ import annotations

import math
import operator
from typing import Any

from fenchel._checks import FenchelError, check_int, check_number


def check_tol(name: str, tol: Any) -> float:
    """Check a tolerance: a finite number above 0."""
    value = check_number(name, "tol", tol, 0.0, "(and above it)")
    if not 0 < value < math.inf:
        raise FenchelError(f"{name}: `tol` must be a finite number above 0; got {tol!r}.")
    return value


def check_max_iter(name: str, max_iter: Any) -> int:
    """Check a number of iterations: an int of at least 1."""
    try:
        value = operator.index(max_iter)
    except TypeError:
        value = 0
    if value < 1 or isinstance(max_iter, bool):
        raise FenchelError(
            f"{name}: expected `max_iter` to be an int of at least 1, but got {max_iter!r}."
        )
    return check_int(name, "max_iter", value)
