"""Files that are either there as a whole or not at all, whatever stops the process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``; tests make this slow, or fail."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_file(path: Path, data: Iterable[bytes | memoryview]) -> None:
    """Write a new file of some pieces, down to the disk."""
    descriptor = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666
    )
    try:
        for piece in data:
            write_all(descriptor, piece)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that readers see either as it was or as it will be, never in between."""
    temporary = path.with_name(f".{path.name}.tmp")
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
