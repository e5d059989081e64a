"""Run checks in several gloo processes, started once for all of them: each start takes seconds."""

from __future__ import annotations

import datetime
import faulthandler
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
    modules: Sequence[str], names: Sequence[str], ranks: int = 2, folder: Path | None = None
) -> dict[str, list[str]]:
    """Call functions of some modules on every rank; their errors, by name.

    Args:
        modules: where the functions are.
        names: of the functions.
        ranks: how many processes there are.
        folder: each function is called with the path of its own name in it; without, with nothing.
    """
    # A server imports torch once and forks the ranks; imports take longer than all checks.
    multiprocessing.set_forkserver_preload([*modules, "torch.distributed.tensor.parallel"])
    with tempfile.TemporaryDirectory() as said:
        arguments = (ranks, list(modules), list(names), folder, said)
        mp.start_processes(_worker, arguments, ranks, start_method="forkserver")
        heard = [json.loads(Path(said, f"{rank}.json").read_text()) for rank in range(ranks)]
    return {name: [of_rank[name] for of_rank in heard if of_rank[name]] for name in names}


def _worker(
    rank: int, ranks: int, modules: list[str], names: list[str], folder: Path | None, said: str
) -> None:
    faulthandler.enable()  # a process that ends without an exception says where
    warnings.simplefilter("error")
    os.fsync = lambda descriptor: None  # no test pulls the plug
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN, as conftest.py does
    dist.init_process_group(
        "gloo",
        init_method=f"file://{said}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=60),
    )
    functions = {}
    for module in modules:
        functions |= vars(importlib.import_module(module))
    errors = {name: "not run" for name in names}
    for name in names:
        errors[name] = ""
        try:
            functions[name](*(() if folder is None else (folder / name,)))
        except Exception:
            errors[name] = f"rank {rank}: {traceback.format_exc()}"
        try:
            dist.barrier()
        except RuntimeError:
            break
    Path(said, f"{rank}.json").write_text(json.dumps(errors))
    dist.destroy_process_group()
