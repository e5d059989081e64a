from __future__ import annotations

import time
from statistics import fmean, median

import torch

from fenchel.models import Batch
from fenchel.tasks import Run

_TRIALS = 8
_SHARE = 0.9  # of the time; the rest is for validation and for slower moments


def affordable_steps(run: Run, steps: int, minutes: float) -> int:
    """How many of ``steps`` updates this machine makes in the time: the schedule has to end in it.

    A few updates of a throw-away model are timed; the run itself is not touched.
    """
    if steps <= _TRIALS:
        return steps
    data, size = run.config.data, run.config.train.batch_size
    pairs = [run.task.pair(example) for example in run.task.read_gold(data.train, data.language)]
    with torch.random.fork_rng(devices=[]):
        seconds = median(_seconds_per_token(run, pairs, size))
    tokens = size * fmean(len(target) + 1 for _, target in pairs)
    return max(1, min(steps, int(60 * minutes * _SHARE / (seconds * tokens))))


def _seconds_per_token(
    run: Run, pairs: list[tuple[list[int], list[int]]], size: int
) -> list[float]:
    model = run.new_model().train()
    optimizer = torch.optim.Adam(model.parameters())
    # As in training, a batch has pairs of about one length, and there are all lengths.
    spread = sorted(pairs[:: max(1, len(pairs) // (size * _TRIALS))], key=lambda pair: len(pair[1]))
    seconds = []
    for start in range(0, len(spread), size):
        batch = Batch.collate(spread[start : start + size])
        began = time.perf_counter()
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
        seconds.append((time.perf_counter() - began) / batch.tokens)
    return seconds[1:] or seconds  # the first warms up
