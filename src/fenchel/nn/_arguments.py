"""Checks and printing of what a module is constructed with."""

from __future__ import annotations

import math
from typing import Any

from fenchel._checks import FenchelError


def check_dim(name: str, dim: Any) -> int:
    """Check that ``dim`` is an int; whether the scores have it shows when they come."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise FenchelError(f"{name}: expected `dim` to be an int, but got {dim!r}.")
    return dim


def check_number(name: str, label: str, value: Any, low: float, meaning: str) -> float:
    """Check that ``value`` is a number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FenchelError(
            f"{name}: expected `{label}` to be a number, but got {type(value).__name__}."
        )
    if math.isnan(value) or value < low:
        raise FenchelError(f"{name}: `{label}` must be at least {low:g} {meaning}; got {value:g}.")
    return float(value)


def written(value: float) -> str:
    """A number as Python code."""
    return "float('inf')" if value == math.inf else repr(value)
