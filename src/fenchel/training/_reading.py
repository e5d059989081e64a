"""Small files of a run directory, read as what a stranger may have sent.

A file is opened only if it is a regular one, not through a link, and read only if it is no longer
than what belongs there. JSON may nest and list so much and no more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fenchel._checks import FenchelError
from fenchel.training._files import open_plain

SMALL, LARGE = 1 << 20, 64 << 20  # bytes: of what people read, and of vocabularies
MOST_VALUES = 4_000_000  # of a JSON file; each takes some sixty bytes of memory, whatever it is


class Unreadable(Exception):
    """A file that is damaged, missing or too long; the text says why, in short."""

    def __init__(self, reason: str) -> None:
        super().__init__(" ".join(reason[:400].split())[:200])


def read_plain(path: Path, limit: int = SMALL) -> bytes:
    """All of a regular file of at most ``limit`` bytes.

    Raises:
        Unreadable: it cannot be read, or is longer.
        FenchelError: it is a link or no file.
    """
    try:
        descriptor = open_plain(path, os.O_RDONLY)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    with os.fdopen(descriptor, "rb") as file:
        try:
            size = os.fstat(descriptor).st_size
            data = b"" if size > limit else file.read(limit + 1)
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from error
    if max(size, len(data)) > limit:
        raise Unreadable(f"it has more than {limit:,} bytes")
    return data


def parse_json(data: bytes) -> Any:
    """The value of JSON text in UTF-8.

    Raises:
        Unreadable: it is none, or too deep, or lists too much.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise Unreadable(f"it has more than {MOST_VALUES:,} values")
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise Unreadable("it nests too deep") from error
    except ValueError as error:  # also of an int with thousands of digits
        raise Unreadable("it is not JSON in UTF-8") from error


def read_json(path: Path, limit: int = SMALL) -> dict[str, Any]:
    """The JSON object of a file; see :func:`read_plain` and :func:`parse_json`."""
    value = parse_json(read_plain(path, limit))
    if not isinstance(value, Mapping):
        raise FenchelError(f"{path}: expected a JSON object, but got {type(value).__name__}.")
    return dict(value)
