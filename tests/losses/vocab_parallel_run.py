"""Run checks in several gloo processes, once for all tests of a file: a process takes seconds."""

from __future__ import annotations

import datetime
import importlib
import json
import multiprocessing
import tempfile
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

MODULES = ("tests.losses.vocab_parallel_checks", "tests.losses.vocab_parallel_groups")


def run_checks(names: list[str], ranks: int) -> dict[str, list[str]]:
    """Call the checks ``names`` on every rank; their errors, by name."""
    with tempfile.TemporaryDirectory() as folder:
        # A server imports torch once and forks the ranks; imports take longer than all checks.
        multiprocessing.set_forkserver_preload([*MODULES, "torch.distributed.tensor.parallel"])
        mp.start_processes(_worker, (names, ranks, folder), ranks, start_method="forkserver")
        heard = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]
    return {name: [of_rank[name] for of_rank in heard if of_rank[name]] for name in names}


def _worker(rank: int, names: list[str], ranks: int, folder: str) -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN, as conftest.py does
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=60),
    )
    functions = {}
    for module in MODULES:
        functions |= vars(importlib.import_module(module))
    errors = {}
    for name in names:
        errors[name] = ""
        try:
            functions[name]()
        except Exception:
            errors[name] = f"rank {rank}: {traceback.format_exc()}"
        try:
            dist.barrier()
        except RuntimeError:
            break
    Path(folder, f"{rank}.json").write_text(json.dumps({n: "not run" for n in names} | errors))
    dist.destroy_process_group()
