"""A lone ``-`` on the command line, which the parser would take for an option without a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fenchel._checks import FenchelError

# No word of a real command line has a zero byte, so that nothing else can be taken for it.
_DASH = "\0-"


def hide_dashes(tokens: list[str]) -> list[str]:
    """The words for the parser, with a stand-in for each ``-``."""
    for token in tokens:
        if "\0" in token:
            raise FenchelError(f"{token!r}: expected a word without a zero byte.")
    return [_DASH if token == "-" else token for token in tokens]


def restore_dashes(value: Any) -> Any:
    """What the parser has made of the words, or says of them, with ``-`` again."""
    if isinstance(value, str):
        return value.replace(_DASH, "-").replace(repr(_DASH)[1:-1], "-")
    if isinstance(value, Path):
        return type(value)(str(value).replace(_DASH, "-"))
    if isinstance(value, list | tuple):
        return type(value)(restore_dashes(item) for item in value)
    if isinstance(value, dict):
        return {key: restore_dashes(item) for key, item in value.items()}
    return value
