"""Run functions in several gloo processes, once for all tests of a file: each takes seconds."""

from __future__ import annotations

import datetime
import importlib
import json
import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run_checks(
    module: str, names: Sequence[str], folder: Path, ranks: int = 2
) -> dict[str, list[str]]:
    """Call the functions ``names`` of a module with ``folder`` on each rank; errors by name."""
    # A server imports torch once and forks the ranks; imports take longer than all checks.
    multiprocessing.set_forkserver_preload([module, "torch.distributed.tensor"])
    with tempfile.TemporaryDirectory() as said:
        arguments = (ranks, module, list(names), str(folder), said)
        mp.start_processes(_worker, arguments, ranks, start_method="forkserver")
        heard = [json.loads(Path(said, f"{rank}.json").read_text()) for rank in range(ranks)]
    return {name: [of_rank[name] for of_rank in heard if of_rank[name]] for name in names}


def _worker(rank: int, ranks: int, module: str, names: list[str], folder: str, said: str) -> None:
    warnings.simplefilter("error")
    os.fsync = lambda descriptor: None  # as conftest.py: no test pulls the plug
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN, as conftest.py does
    dist.init_process_group(
        "gloo",
        init_method=f"file://{said}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=60),
    )
    functions = vars(importlib.import_module(module))
    errors = {name: "not run" for name in names}
    for name in names:
        errors[name] = ""
        try:
            functions[name](Path(folder, name))
        except Exception:
            errors[name] = f"rank {rank}: {traceback.format_exc()}"
        try:
            dist.barrier()
        except RuntimeError:
            break
    Path(said, f"{rank}.json").write_text(json.dumps(errors))
    dist.destroy_process_group()
