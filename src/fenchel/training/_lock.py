"""One process at a time trains in a run directory.

The system holds the lock, not the file: it is free again when the process ends, however it ends.
"""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path
from typing import Any

from fenchel._checks import FenchelError
from fenchel.training._files import open_plain

FILE = ".lock"
_BUSY = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN, errno.EDEADLK)


class RunLock:
    """The lock of one run directory.

    Args:
        run_dir: where the file ``.lock`` is while the lock is held.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.path = run_dir, run_dir / FILE
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, if this object does not have it; refuse if another has."""
        while self._descriptor is None:
            descriptor = open_plain(self.path, os.O_RDWR | os.O_CREAT)
            try:
                _lock(descriptor, self.run_dir)
                # Whoever had it may have removed the file between our two steps.
                if _is_same(descriptor, self.path):
                    self._descriptor = descriptor
            finally:
                if self._descriptor is None:
                    os.close(descriptor)

    def close(self) -> None:
        """Give it back, and take the file away."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            if os.name == "posix":  # elsewhere an open file cannot be removed
                self.path.unlink(missing_ok=True)
        except OSError:  # a directory that has become read-only keeps a file that says nothing
            pass
        finally:
            os.close(descriptor)


def _lock(descriptor: int, run_dir: Path) -> None:
    try:
        _exclusive(descriptor)
    except OSError as error:
        if error.errno in _BUSY:
            raise FenchelError(
                f"{run_dir}: another process trains here; wait until it ends, or choose another "
                f"directory."
            ) from None
        warnings.warn(
            f"{run_dir}: its file system has no locks ({error.strerror}); make sure that no other "
            f"process trains here.",
            RuntimeWarning,
            stacklevel=2,
        )


def _exclusive(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        module: Any = msvcrt
        module.locking(descriptor, module.LK_NBLCK, 1)


def _is_same(descriptor: int, path: Path) -> bool:
    if os.name != "posix":
        return True
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
