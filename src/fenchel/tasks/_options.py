from __future__ import annotations

from dataclasses import field
from typing import Any

from fenchel._checks import FenchelError


def option(default: Any, text: str) -> Any:
    """A field of a config, with the comment that ``config.yaml`` shows above it."""
    return field(default=default, metadata={"help": text})


def check_at_least(name: str, label: str, value: Any, low: int) -> None:
    """Check that a config's field is an int of at least ``low``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise FenchelError(
            f"{name}: expected `{label}` to be an int of at least {low}, but got {value!r}."
        )
