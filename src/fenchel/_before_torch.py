"""What the command line does before torch is imported, which takes a second or two.

The OpenMP library reads its settings when torch loads it, a Ctrl-C must not end in a traceback from
the middle of an import, and no file that torch opens may get the number of a standard stream that
is closed. ``fenchel`` imports this module first; in any other process than the command line it does
nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from typing import Any

INTERRUPTED = 130


def is_command_line() -> bool:
    """Whether this process runs ``fenchel`` or ``python -m fenchel``, under torchrun or not."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":  # what stands there until Python has found the module
        words = pairwise(sys.orig_argv)
        return any(f[:1] == "-" and f[-1:] == "m" and name == "fenchel" for f, name in words)
    return os.path.basename(program) in ("fenchel", "fenchel.exe", "fenchel-script.py")


def hold_descriptors() -> None:
    """Open the null device on each standard descriptor that is closed.

    The next file to be opened would get its number, and what is meant for the screen would land in
    that file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one


def wait_passively() -> None:
    """Let OpenMP threads sleep while they wait for each other, unless the user has chosen.

    By default they spin, which costs nothing on an idle machine. On a busy one a thread spins
    through the time that the thread it waits for would need, and training slows down tenfold.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "passive"


def leave(*_: Any) -> None:
    """End at once: during the imports there is nothing to put away."""
    os.write(2, b"fenchel: interrupted.\n")
    os._exit(INTERRUPTED)


def leave_quietly_on_interrupt() -> None:
    """End in one line on Ctrl-C, where it would be a KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def interrupt_as_usual() -> None:
    """Undo :func:`leave_quietly_on_interrupt`: from now on there may be something to put away."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command_line():
    hold_descriptors()
    wait_passively()
    leave_quietly_on_interrupt()
