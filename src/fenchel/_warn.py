"""Warnings that name the user's line, however deep inside fenchel they arise."""

from __future__ import annotations

import sys
import warnings

_OURS = {"fenchel", "torch"}


def warn(message: str) -> None:
    """Warn at the innermost line that is neither fenchel's nor torch's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
