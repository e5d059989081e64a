"""Ctrl-C and SIGTERM as a request to stop after the current step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Whether someone asked to stop."""

    requested: bool = False


@contextmanager
def stop_on_signal(*, patient: bool = False) -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request; the second acts as it always does.

    Unless ``patient``: torchrun hands a Ctrl-C on to ranks that the terminal has told already, and
    ends those that take too long.

    An exception out of the middle of an update would leave some weights updated and others not.
    Only the main thread can receive signals; elsewhere nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, frame: FrameType | None) -> None:
        # Nothing is printed here: the signal may have come in the middle of a print.
        request.requested = True
        for other in () if patient else numbers:
            signal.signal(other, before[other])

    for number in numbers:
        signal.signal(number, handle)
    try:
        yield request
    finally:
        for number in numbers:
            signal.signal(number, before[number])
