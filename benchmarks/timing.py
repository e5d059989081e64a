"""Interleaved medians: A B C A B C ..., never all A then all B."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


def interleave(
    work: dict[str, Callable[[], object]],
    seconds: float = 1.0,
    least: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds by ``clock`` of each work, run in turns until ``seconds`` are used up."""
    for run in work.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in work}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < least:
        for name, run in work.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


class Work(NamedTuple):
    """A training step, and how to drop the gradients it leaves."""

    run: Callable[[], object]
    clear: Callable[[], None]

    def __call__(self) -> object:
        return self.run()


def peak_memory(work: Work) -> float:
    """How many megabytes the work needs at its peak, gradients included (Linux only)."""
    work()
    work.clear()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed is given back, or it would hide what is used
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the peak starts again from what is resident now
    before = status("VmRSS")
    work()
    return (status("VmHWM") - before) / 1024


def status(key: str) -> int:
    """A number of this process that Linux tells, as ``VmRSS`` in kilobytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key + ":"))
