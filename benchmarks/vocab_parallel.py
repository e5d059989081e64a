"""An output layer's loss in several gloo processes against one: time, and bytes on the wire.

    python -m benchmarks.vocab_parallel [--ranks 2] [--markdown FILE.md] [--quick]

Each process has one thread. Times are CPU seconds of a process for forward + backward, the largest
over ranks, so that neighbours on the machine do not count; waiting does not count either. Bytes are
those that a rank hands to collectives in the forward pass, for each row; the backward pass adds d
numbers. The loss and the gradient of the hidden states are compared with one process first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import fenchel as fy
from benchmarks.output_layer import make
from benchmarks.reporting import announce, place, today
from fenchel.losses._vocab_ranks import Collectives

ROWS, D = 1024, 512
# classes, scale of the weights, alpha
CASES = [
    (32000, 4.0, 1.5),
    (32000, 1.0, 1.5),
    (32000, 0.2, 1.5),
    (32000, 0.02, 1.5),
    (32000, 1.0, 2.0),
    (32000, 1.0, 1.3),
    (32000, 1.0, 1.0),
    (64000, 4.0, 1.5),
    (64000, 1.0, 1.5),
]


def median_cpu(run: Callable[[], object], times: int) -> float:
    run()
    seconds = []
    for _ in range(times):
        dist.barrier()
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return sorted(seconds)[times // 2]


def measure(case: tuple[int, float, float], times: int) -> dict[str, float] | None:
    classes, scale, alpha = case
    hidden, weight, target = make(ROWS, D, classes, scale)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    shard = weight.chunk(ranks)[rank].clone().requires_grad_()
    hidden.requires_grad_()

    def clear() -> None:
        hidden.grad = shard.grad = weight.grad = None

    def sharded() -> Tensor:
        clear()
        loss = fy.vocab_parallel_entmax_loss(hidden, shard, target, alpha)
        loss.backward()
        return loss.detach()

    def alone() -> Tensor:
        clear()
        loss = fy.linear_entmax_loss(hidden, weight.requires_grad_(), target, alpha)
        loss.backward()
        return loss.detach()

    wanted, grad = alone(), hidden.grad
    error = max(
        float((sharded() - wanted).abs()),
        float((hidden.grad - grad).abs().max()),
    )
    if not error <= 1e-6:
        raise SystemExit(f"correctness gate is red: {error:.1e} at {case}")
    Collectives.sent = 0
    with torch.no_grad():
        fy.vocab_parallel_entmax_loss(hidden, shard, target, alpha)
    sent = Collectives.sent / ROWS
    mine = torch.tensor([median_cpu(sharded, times)])
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    if rank > 0:
        for _ in range(times):  # the barriers of the other
            dist.barrier()
        return None
    p = fy.linear_sparse_entmax(hidden.detach(), weight.detach(), alpha) if alpha > 1 else None
    return {
        "support": classes if p is None else p.sizes.double().mean().item(),
        "sharded_ms": 1e3 * float(mine),
        "alone_ms": 1e3 * median_cpu(alone, times),
        "bytes": sent,
        "logits": 4 * classes / ranks,
    }


def markdown(rows: list[tuple[tuple, dict]], ranks: int) -> str:
    lines = [
        f"{ROWS} rows, d = {D}, float32, forward + backward, {ranks} gloo processes of one thread "
        "on one machine: CPU time of a rank relative to that of one process with the whole weight, "
        "and bytes that a rank sends in the forward pass for each row, beside those of its logits. "
        f"{place()}, {today()}; the machine was shared.",
        "",
        "| V | α | mean support | time | bytes a row | its logits |",
        "|---|---|---|---|---|---|",
    ]
    for (classes, _, alpha), r in rows:
        lines.append(
            f"| {classes} | {alpha:g} | {r['support']:.0f} | "
            f"{r['sharded_ms'] / r['alone_ms']:.2f} | {r['bytes']:.0f} | {r['logits']:.0f} |"
        )
    return "\n".join([*lines, ""])


def work(rank: int, ranks: int, folder: str, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    rows = []
    for case in CASES:
        found = measure(case, 3 if options.quick else 7)
        if found is None:
            continue
        rows.append((case, found))
        print(
            f"V {case[0]} alpha {case[2]:g} support {found['support']:8.1f}: a rank "
            f"{found['sharded_ms']:6.0f} ms, alone {found['alone_ms']:6.0f} ms, "
            f"{found['bytes']:8.1f} bytes a row (logits {found['logits']:.0f})",
            flush=True,
        )
    if options.markdown and rank == 0:
        Path(options.markdown).write_text(markdown(rows, ranks))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="number of processes")
    parser.add_argument("--markdown", help="write the table of the docs to this file")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    options = parser.parse_args()
    announce()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (options.ranks, folder, options), nprocs=options.ranks)


if __name__ == "__main__":
    sys.exit(main())
