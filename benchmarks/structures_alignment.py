"""soft-DTW against tslearn and pysdtw, value + gradient; assignments against a scipy loop.

    OMP_NUM_THREADS=1 python -m benchmarks.structures_alignment

Needs `pip install tslearn pysdtw scipy`. One thread, batches of 64, CPU time of the process, so
that neighbours on the machine count less. All get the same cost matrices in float64; the peers'
compiled kernels are called directly, without their Python layers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor

from benchmarks.reporting import announce
from benchmarks.timing import interleave
from fenchel.structures import Assignment, soft_dtw

BATCH = 64


def ours(cost: Tensor) -> Callable[[], Tensor]:
    leaf = cost.clone().requires_grad_()

    def run() -> Tensor:
        leaf.grad = None
        soft_dtw(leaf).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    return run


def tslearn(cost: Tensor) -> Callable[[], Tensor]:
    from tslearn.metrics import soft_dtw_loss_pytorch as theirs

    costs, mask = cost.numpy(), np.ones(cost.shape[1:], dtype=bool)

    def run() -> Tensor:
        values = theirs._njit_soft_dtw_batch(costs, 1.0, mask)
        return torch.from_numpy(theirs._njit_soft_dtw_grad_batch(costs, values, 1.0))

    return run


def pysdtw(cost: Tensor) -> Callable[[], Tensor]:
    from pysdtw import sdtw_cpu as theirs

    costs, lengths = cost.numpy(), np.array([cost.shape[1:]] * len(cost))

    def run() -> Tensor:
        values = theirs.compute_softdtw(costs, lengths, 1.0, 0.0)
        gradient = theirs.compute_softdtw_backward(costs, values, lengths, 1.0, 0.0)
        return torch.from_numpy(gradient)

    return run


def gate(answers: dict[str, Tensor], tolerance: float) -> None:
    truth = next(iter(answers.values()))
    for name, answer in answers.items():
        error = (answer - truth).abs().max().item()
        if not error <= tolerance:
            raise SystemExit(f"correctness gate is red: {name} is off by {error:.1e}")


def report(title: str, times: dict[str, float]) -> None:
    first = next(iter(times.values()))
    for name, seconds in times.items():
        print(f"{title}  {name:>8} {1e3 * seconds:8.3f} ms  {seconds / first:6.2f} x fenchel")


def main() -> None:
    torch.set_num_threads(1)
    announce()
    for n in (50, 200):
        cost = torch.rand(BATCH, n, n, dtype=torch.float64)
        work: dict[str, Callable[[], object]] = {
            "fenchel": ours(cost),
            "tslearn": tslearn(cost),
            "pysdtw": pysdtw(cost),
        }
        gate({name: torch.as_tensor(run()) for name, run in work.items()}, 1e-9)
        report(f"soft-DTW   {n:3d} x {n:3d}", interleave(work, 5.0, clock=time.process_time))

    from scipy.optimize import linear_sum_assignment

    scores = torch.randn(BATCH, 12, 12, dtype=torch.float64)
    table, structure = scores.numpy(), Assignment()

    def loop() -> Tensor:
        best = np.zeros_like(table)
        for one, matrix in zip(best, table, strict=True):
            one[linear_sum_assignment(matrix, maximize=True)] = 1
        return torch.from_numpy(best)

    work = {"fenchel": lambda: structure.argmax(scores), "scipy": loop}
    gate({name: torch.as_tensor(run()) for name, run in work.items()}, 0.0)
    report("assignment 12 x  12", interleave(work, 2.0, clock=time.process_time))


if __name__ == "__main__":
    sys.exit(main())
