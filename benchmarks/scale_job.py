"""One training job of ``benchmarks.scale``, in this process or under torchrun.

    python -m benchmarks.scale_job JOB.json

Rank 0 leaves ``metrics.jsonl`` and checkpoints in the run directory; each rank leaves
``rank-<r>.json`` there, with its bytes and its peak of memory.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import status
from fenchel.models import Batch, build_model, model_config
from fenchel.training import TrainConfig, Trainer

WARM_UP = 3  # batches before the peak of memory is counted


def words(count: int, vocabulary: int) -> list[tuple[list[int], list[int]]]:
    """Sequences of 5 to 30 tokens and their reverse."""
    draw = random.Random(0)
    lengths = [draw.randint(5, 30) for _ in range(count)]
    rows = [[draw.randint(4, vocabulary - 1) for _ in range(length)] for length in lengths]
    return [(row, row[::-1]) for row in rows]


def local_bytes(tensors: list[Any]) -> int:
    """Of what this rank holds."""
    local = [x.to_local() if hasattr(x, "to_local") else x for x in tensors]
    return sum(x.numel() * x.element_size() for x in local)


def held() -> dict[str, int]:
    """Bytes of parameters, gradients and Adam's averages on this rank."""
    (optimizer,) = (o for o in gc.get_objects() if isinstance(o, torch.optim.Optimizer))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = [x for state in optimizer.state.values() for x in state.values()]
    return {
        "parameters": local_bytes(parameters),
        "gradients": local_bytes([p.grad for p in parameters if p.grad is not None]),
        "adam": local_bytes([x for x in states if isinstance(x, Tensor) and x.dim() > 0]),
    }


class Collate:
    """Counts batches: where the warm-up ends, and where this rank is to die."""

    def __init__(self, killed: str | None) -> None:
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        self.killed, self.calls = killed if first else None, 0

    def __call__(self, pairs: list[Any]) -> Batch:
        self.calls += 1
        if f"{os.environ.get('RANK')}:{self.calls}" == self.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.calls == WARM_UP:
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        return Batch.collate(pairs)


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    run, config = Path(job["run"]), model_config(**job["model"])
    rank = os.environ.get("RANK", "0")

    found: dict[str, int] = {}

    def validate(model: torch.nn.Module) -> dict[str, float]:
        found.update(held())
        found["peak with a checkpoint"] = 1024 * status("VmHWM")  # written after the last time
        found.setdefault("peak", found["peak with a checkpoint"])
        run.with_name(f"{run.name}.rank-{rank}.json").write_text(json.dumps(found))
        return {"loss": 0.0}

    before = 1024 * status("VmRSS")
    torch.manual_seed(0)
    model = build_model(config)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, "
          f"{before / 2**20:.0f} MiB without them", flush=True)  # fmt: skip
    Trainer(
        model,
        words(job["examples"], config.target_vocabulary),
        TrainConfig(**job["train"]),
        run,
        collate=Collate(job.get("killed")),
        validate=validate,
        show_progress=False,
    ).run()


if __name__ == "__main__":
    main()
