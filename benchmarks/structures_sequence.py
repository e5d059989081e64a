"""Chain CRF: log-likelihood and its gradient, against other libraries.

    python -m benchmarks.structures_sequence [--peers] [--seconds 3]

One thread, process CPU time (a busy machine slows all alike), interleaved medians. A time is
printed only after values and gradients agree with the reference. ``--peers`` needs pytorch-crf and
torch-struct.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

import fenchel as fy
from benchmarks.timing import machine
from fenchel.structures import Sequence, SequenceScores

SHAPES = [(64, 20, 5), (64, 100, 20), (8, 1000, 50)]

Step = Callable[[], tuple[Tensor, list[Tensor]]]


def cpu_medians(work: dict[str, Step], seconds: float, least: int = 3) -> dict[str, float]:
    """Median CPU seconds of each, run in turns until about ``seconds`` are used up."""
    for run in work.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in work}
    end = time.process_time() + seconds
    while time.process_time() < end or len(next(iter(times.values()))) < least:
        for name, run in work.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def ours(blocks: list[Tensor], target: Tensor) -> Step:
    structure = Sequence(blocks[0].shape[-1])

    def run() -> tuple[Tensor, list[Tensor]]:
        scores = SequenceScores(*blocks)
        problem = structure._problem("benchmark", scores)
        gold = problem.score(structure._target_parts("benchmark", problem, target))
        loss = (structure._smoothed_max(problem, "entropy", 1.0) - gold).sum()
        return loss.detach(), list(torch.autograd.grad(loss, blocks))

    return run


def pytorch_crf(blocks: list[Tensor], target: Tensor) -> Step:
    from torchcrf import CRF

    crf = CRF(blocks[0].shape[-1], batch_first=True)
    crf.to(blocks[0].dtype)
    names = ("transitions", "start_transitions", "end_transitions")
    with torch.no_grad():
        for name, block in zip(names, blocks[1:], strict=True):
            getattr(crf, name).copy_(block)
    leaves = [blocks[0], *(getattr(crf, name) for name in names)]

    def run() -> tuple[Tensor, list[Tensor]]:
        loss = -crf(blocks[0], target, reduction="sum")
        return loss.detach(), list(torch.autograd.grad(loss, leaves))

    return run


def torch_struct(blocks: list[Tensor], target: Tensor) -> Step:
    from torch_struct import LinearChainCRF

    emissions, transitions, start, end = blocks
    batch, positions, k = emissions.shape

    def run() -> tuple[Tensor, list[Tensor]]:
        # Its potentials are (batch, T-1, to, from), the first emission in the first of them.
        steps = transitions.mT + emissions[:, 1:, :, None]
        first = torch.zeros_like(steps)
        first[:, 0] = (emissions[:, 0] + start)[:, None, :]
        first[:, -1] = first[:, -1] + end[:, None]
        potentials = steps + first
        at = torch.arange(batch)[:, None], torch.arange(positions - 1), target[:, 1:], target[:, :-1]
        loss = LinearChainCRF(potentials).partition.sum() - potentials[at].sum()
        return loss.detach(), list(torch.autograd.grad(loss, blocks))

    return run


def gate(name: str, got: tuple[Tensor, list[Tensor]], truth: tuple[Tensor, list[Tensor]]) -> None:
    for mine, other in zip([got[0], *got[1]], [truth[0], *truth[1]], strict=True):
        error = ((mine - other).abs() / (1 + other.abs())).max().item()
        if not error <= (1e-5 if name == "fenchel" else 1e-3):  # peers compute in float32
            raise SystemExit(f"correctness gate is red: {name} is off by {error:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="with pytorch-crf and torch-struct")
    parser.add_argument("--seconds", type=float, default=3.0, help="a shape")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}\n{fy.backends()}\n")
    for batch, positions, k in SHAPES:
        shapes = [(batch, positions, k), (k, k), (k,), (k,)]
        blocks = [torch.randn(shape).requires_grad_() for shape in shapes]
        target = torch.randint(k, (batch, positions))
        work = {"fenchel": ours(blocks, target)}
        if asked.peers:
            work["pytorch-crf"] = pytorch_crf(blocks, target)
            work["torch-struct"] = torch_struct(blocks, target)
        with fy.use_backend("reference"):
            truth = ours([block.detach().double().requires_grad_() for block in blocks], target)()
        for name, step in work.items():
            gate(name, step(), truth)
        times = cpu_medians(work, asked.seconds)
        for name, seconds in times.items():
            ratio = seconds / times["fenchel"]
            shape = f"{batch} x {positions} x {k}"
            print(f"{shape:>14}  {name:>13} {1e3 * seconds:9.3f} ms  {ratio:6.1f} x fenchel")


if __name__ == "__main__":
    sys.exit(main())
