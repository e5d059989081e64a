"""Metrics as JSON lines, cut back on resume to what the checkpoint had seen.

Beside losses and rates they have what a model tells about itself: learned α, and support sizes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fenchel._compat import require
from fenchel.runs.files import check_directory, open_plain, sync_directory, write_all
from fenchel.runs.tensors import whole

# What no two runs have in common; all the rest of a resumed run's records is the same.
TIMING = ("tokens_per_second", "seconds")


class Records:
    """``metrics.jsonl``, one object a line, and the same for TensorBoard if asked.

    A line of kind ``"train"`` has the averages since the line before; one of kind
    ``"validation"`` has what ``validate`` returned under ``"metrics"``.

    Args:
        run_dir: of the run.
        size: how many bytes of the file to keep, what comes after them is cut off.
        step: the step to go on from.
        tensorboard: write event files into ``run_dir/tensorboard`` as well.
    """

    def __init__(self, run_dir: Path, *, size: int, step: int, tensorboard: bool) -> None:
        path = run_dir / "metrics.jsonl"
        # Unbuffered: a full disk shows at the line that does not fit, not when the file closes.
        self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
        if os.fstat(self._descriptor).st_size > size:
            os.ftruncate(self._descriptor, size)
        self.size = os.lseek(self._descriptor, 0, os.SEEK_END)
        sync_directory(run_dir)
        self._writer: Any = _tensorboard(run_dir, step) if tensorboard else None

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line. Numbers that JSON cannot hold (NaN, infinities) become null."""
        data = (json.dumps(_plain(record), ensure_ascii=False) + "\n").encode()
        write_all(self._descriptor, data)
        self.size += len(data)
        if self._writer is not None:
            self._to_tensorboard(record)

    def sync(self) -> int:
        """Bring all lines to the disk; returns how many bytes there are."""
        os.fsync(self._descriptor)
        if self._writer is not None:
            self._writer.flush()
        return self.size

    def close(self) -> None:
        """Close the files."""
        os.close(self._descriptor)
        if self._writer is not None:
            self._writer.close()

    def _to_tensorboard(self, record: Mapping[str, Any]) -> None:
        values = {**record, **record.get("metrics", {})}
        for name, value in values.items():
            if isinstance(value, int | float) and name not in ("step", "improved"):
                self._writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])


class NoRecords:
    """Writes nothing: of several ranks, one keeps the records."""

    def write(self, record: Mapping[str, Any]) -> None:
        """Nothing."""

    def sync(self) -> int:
        """Nothing is there."""
        return 0

    def close(self) -> None:
        """Nothing."""


@torch.no_grad()
def observe(model: nn.Module) -> dict[str, Any]:
    """Ask a model for what it reports, if it does.

    Returns:
        ``"alphas"``, a list of numbers by name, if ``model.alphas()`` exists and is not empty;
        ``"support_size"``, if ``model.support_size()`` exists and knows: the mean number of outputs
        with nonzero probability.
    """
    seen: dict[str, Any] = {}
    alphas = getattr(model, "alphas", None)
    if callable(alphas):
        values = _named(alphas())
        if values:
            seen["alphas"] = values
    support = getattr(model, "support_size", None)
    size = support() if callable(support) else None
    if size is not None and math.isfinite(size):
        seen["support_size"] = float(size)
    return seen


def _named(alphas: Any) -> dict[str, list[float]]:
    if not isinstance(alphas, Mapping):
        alphas = {"alpha": alphas}
    numbers = {str(name): _numbers(value) for name, value in alphas.items()}
    return {name: values for name, values in numbers.items() if values}


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Tensor):
        return [float(x) for x in whole(value.detach()).flatten().tolist()]
    if isinstance(value, Iterable):
        return [x for item in value for x in _numbers(item)]
    return [] if value is None else [float(value)]


def _tensorboard(run_dir: Path, step: int) -> Any:
    # torch's own message does not say which extra; this one does.
    require("tensorboard", extra="tensorboard", purpose="`tensorboard: true`")
    module = require("torch.utils.tensorboard", extra="tensorboard", purpose="`tensorboard: true`")
    check_directory(run_dir / "tensorboard")
    return module.SummaryWriter(str(run_dir / "tensorboard"), purge_step=step + 1)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
