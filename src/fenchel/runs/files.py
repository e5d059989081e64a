"""Files of a run directory: written as a whole or not at all, read as what a stranger has sent.

Whatever stops the process, a file is there as it was or as it will be. Nothing is written or read
through a symbolic link, and what is read is a regular file, no longer than what belongs there. JSON
may nest and list so much and no more.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fenchel._checks import FenchelError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
SMALL, LARGE = 1 << 20, 64 << 20  # bytes: of what people read, and of vocabularies
MOST_VALUES = 4_000_000  # of a JSON file; each takes some sixty bytes of memory, whatever it is
# Not through a link, and without waiting for the other end of a pipe.
PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Unreadable(Exception):
    """A file that is damaged, missing or too long; the text says why, in short."""

    def __init__(self, reason: str) -> None:
        super().__init__(" ".join(reason[:400].split())[:200])


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``; tests make this slow, or fail."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def open_plain(path: Path, flags: int) -> int:
    """Open a regular file, and nothing else: no link, pipe, device or directory."""
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise not_plain(path)
    try:
        descriptor = os.open(path, flags | PLAIN, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise not_plain(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise not_plain(path)
    return descriptor


def not_plain(path: Path, expected: str = "a regular file") -> FenchelError:
    """What to say of a link, a pipe, a device or a directory where none should be."""
    what = "a symbolic link" if path.is_symlink() else "something else"
    remedy = "; copy what it points to in its place" if path.is_symlink() else ""
    return FenchelError(
        f"{path}: expected {expected} in a run directory, but it is {what}{remedy}."
    )


def check_directory(path: Path) -> None:
    """Refuse a folder of a run that is a link or no folder, if it is there at all."""
    if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
        raise not_plain(path, "a directory")


def write_file(path: Path, data: Iterable[bytes | memoryview]) -> None:
    """Write a new file of some pieces, down to the disk; what has its name is removed first."""
    if os.path.lexists(path):
        if path.is_dir() and not path.is_symlink():
            raise not_plain(path)
        path.unlink()
    descriptor = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for piece in data:
            write_all(descriptor, piece)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that readers see either as it was or as it will be, never in between."""
    temporary = path.with_name(f".{path.name}.tmp")
    if path.is_dir() and not path.is_symlink():
        raise not_plain(path)
    try:
        write_file(temporary, [data])
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames within a directory survive a loss of power, where the system offers it."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8; one from the file system or the shell need not be."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
