from __future__ import annotations

from dataclasses import field
from typing import Any

from fenchel._checks import FenchelError
from fenchel._short import short


def option(default: Any, text: str) -> Any:
    """A field of a config, with the comment that ``config.yaml`` shows above it."""
    return field(default=default, metadata={"help": text})


def check_at_least(name: str, label: str, value: Any, low: int, high: int = 2**53) -> None:
    """Check that a config's field is an int of at least ``low``, and of at most ``high``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise FenchelError(
            f"{name}: expected `{label}` to be an int of at least {low}, but got {short(value)}."
        )
    if value > high:
        raise FenchelError(
            f"{name}: expected `{label}` to be an int of at most {high}, but got {short(value)}."
        )
