"""A value in a message: short whatever it is, because it may come from a file of a stranger."""

from __future__ import annotations

import reprlib
from typing import Any

LONGEST = 80


class _Short(reprlib.Repr):
    """Looks at a few items of a few levels only: aliases can make a small file a huge value."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 4
        self.maxstring = self.maxother = LONGEST

    def repr_str(self, x: str, level: int) -> str:
        # The library would escape all of a text before it cuts it.
        return repr(x) if len(x) <= self.maxstring else f"{x[: self.maxstring]!r}…"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= self.maxstring else f"{x[: self.maxstring]!r}…"

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write an int of more than 4300 digits.
        return repr(x) if x.bit_length() <= 256 else f"an int of {x.bit_length()} bits"


def short(value: Any) -> str:
    """``repr(value)`` if that is short, or its beginning.

    Example:
        >>> from fenchel._short import short
        >>> short("ab"), short([0] * 9)
        ("'ab'", '[0, 0, 0, 0, ...]')
    """
    text = _Short().repr(value)
    return text if len(text) <= 2 * LONGEST else f"{text[: 2 * LONGEST]}…"


def bare(value: Any) -> str:
    """:func:`short` without the quotes of a text: names of files, keys, versions."""
    return short(value)[1:-1].removesuffix("'") if isinstance(value, str) else short(value)
