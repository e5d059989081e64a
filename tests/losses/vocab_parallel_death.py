"""One of two ranks is late, and then dies in the middle of a step: what the other one sees."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import fenchel as fy
from fenchel.losses._vocab_ranks import Collectives


def step(group) -> None:
    hidden = torch.randn(8, 4, requires_grad=True)
    weight = torch.randn(10, 4, requires_grad=True)
    target = torch.zeros(8, dtype=torch.int64)
    fy.vocab_parallel_entmax_loss(hidden, weight, target, group=group).backward()


def main(rank: int, rendezvous: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    short = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=2))
    patient = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=60))
    step(short)
    step(patient)
    dist.barrier(group=patient)
    if rank == 1:
        time.sleep(6)
    else:
        try:
            step(short)
        except RuntimeError as error:
            print(f"late: {error}", flush=True)
    dist.barrier(group=patient)
    if rank == 1:
        gather = Collectives.gather
        calls = []

        def last_gather(self, x):
            calls.append(x)
            if len(calls) == 2:  # the first one is the agreement on the shards
                os.kill(os.getpid(), signal.SIGKILL)
            return gather(self, x)

        Collectives.gather = last_gather
    step(patient)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
