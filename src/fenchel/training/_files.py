"""Files that are either there as a whole or not at all, whatever stops the process.

Nothing is written through a symbolic link: a run directory may be a stranger's.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from fenchel._checks import FenchelError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Not through a link, and without waiting for the other end of a pipe.
PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


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
