"""Printing of what a module is constructed with."""

from __future__ import annotations

import math


def written(value: float) -> str:
    """A number as Python code."""
    return "float('inf')" if value == math.inf else repr(value)
