"""Whose a run directory is: one process at a time trains in it, and one job has begun it.

The system holds the lock, not the file: it is free again when the process ends, however it ends.

``torchrun --max-restarts`` starts all ranks again with the same command line. What says "a new run"
must then mean "go on with it", but only in a directory that this very job has begun: one that was
refused the first time is refused again. So the job leaves its name there.
"""

from __future__ import annotations

import errno
import os
import socket
import warnings
from pathlib import Path
from typing import Any

from torch.distributed import is_available

from fenchel._checks import FenchelError
from fenchel.runs.files import Unreadable, open_plain, read_plain, write_file

LOCK, CLAIM = ".lock", ".torchrun"
_BUSY = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN, errno.EDEADLK)


class RunLock:
    """The lock of one run directory.

    Args:
        run_dir: where the file ``.lock`` is while the lock is held.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.path = run_dir, run_dir / LOCK
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


def claim(run_dir: Path) -> None:
    """Write down that this job has begun the run, if ``torchrun`` started it."""
    name = _job()
    if name is not None:
        write_file(run_dir / CLAIM, [f"{name}\n".encode()])


def release_claim(run_dir: Path) -> None:
    """Forget that a job of this name has begun the run: this one was refused, so it was another."""
    if is_claimed(run_dir):
        (run_dir / CLAIM).unlink(missing_ok=True)


def is_claimed(run_dir: Path) -> bool:
    """Whether this job has begun the run in ``run_dir``."""
    job = _job()
    try:
        return job is not None and read_plain(run_dir / CLAIM).decode().strip() == job
    except (Unreadable, ValueError):  # also of what is no file
        return False


def launched() -> bool:
    """Whether torchrun, or a launcher that sets the same variables, started several processes."""
    names = ("RANK", "MASTER_ADDR", "MASTER_PORT")
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return several and is_available() and all(name in os.environ for name in names)


def _job() -> str | None:
    """What stays the same when torchrun restarts its ranks: its id, or that of its process."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name is None:
        return None
    return name if name != "none" else f"{socket.gethostname()} {os.getppid()}"
