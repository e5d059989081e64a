"""Whether ``torchrun`` has restarted this job, and which run directory is the job's own.

``torchrun --max-restarts`` starts all ranks again with the same command line. What says "a new run"
must then mean "go on with it", but only in a directory that this very job has begun: one that was
refused the first time is refused again.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from fenchel.training._files import write_file
from fenchel.training._reading import Unreadable, read_plain
from fenchel.training.distributed._ranks import Ranks

FILE = ".torchrun"


def claim(run_dir: Path) -> None:
    """Write down that this job has begun the run, if ``torchrun`` started it."""
    name = _job()
    if name is not None:
        write_file(run_dir / FILE, [f"{name}\n".encode()])


def disown(run_dir: Path) -> None:
    """Forget that a job of this name has begun the run: this one was refused, so it was another."""
    path = run_dir / FILE
    if _is_own(path):
        path.unlink(missing_ok=True)


def is_own_restart(run_dir: Path, ranks: Ranks) -> bool:
    """Whether the ranks were restarted, and their job had begun the run in ``run_dir``.

    Of several machines, only the one whose rank has died counts its restarts.
    """
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    heard = ranks.gather((count != "0", _is_own(run_dir / FILE)))
    return any(restarted for restarted, _ in heard) and heard[0][1]


def _is_own(path: Path) -> bool:
    job = _job()
    try:
        return job is not None and read_plain(path).decode().strip() == job
    except (Unreadable, ValueError):  # also of what is no file
        return False


def _job() -> str | None:
    """What stays the same when torchrun restarts its ranks: its id, or that of its process."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name is None:
        return None
    return name if name != "none" else f"{socket.gethostname()} {os.getppid()}"
