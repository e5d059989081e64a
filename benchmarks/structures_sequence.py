"""Chain CRF: log-likelihood and its gradient, against other libraries.

    python -m benchmarks.structures_sequence [--peers] [--seconds 3]

One thread, process CPU time, interleaved medians. A peer is timed beside fenchel alone: what
torch-struct frees is given back to the system in the time of whoever runs next (in turns with it,
fenchel's 64 x 100 x 20 takes 20 ms instead of 3.4, of which 12 are system time). Times are printed
only after values and gradients agree with the reference in float64. ``--peers`` needs pytorch-crf
and torch-struct.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

import fenchel as fy
from benchmarks.reporting import announce

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
    omega = fy.Marginals(fy.Sequence(blocks[0].shape[-1]))

    def run() -> tuple[Tensor, list[Tensor]]:
        loss = omega.loss(fy.SequenceScores(*blocks), target).sum()
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
    batch, positions, _ = emissions.shape

    def run() -> tuple[Tensor, list[Tensor]]:
        # Its potentials are (batch, T-1, to, from), the first emission in the first of them.
        steps = transitions.mT + emissions[:, 1:, :, None]
        first = torch.zeros_like(steps)
        first[:, 0] = (emissions[:, 0] + start)[:, None, :]
        first[:, -1] = first[:, -1] + end[:, None]
        potentials = steps + first
        at = (
            torch.arange(batch)[:, None],
            torch.arange(positions - 1),
            target[:, 1:],
            target[:, :-1],
        )
        loss = LinearChainCRF(potentials).partition.sum() - potentials[at].sum()
        return loss.detach(), list(torch.autograd.grad(loss, blocks))

    return run


def gate(
    name: str, make: Callable[[list[Tensor], Tensor], Step], blocks: list[Tensor], target: Tensor
) -> None:
    """In float64: a peer's rounding in float32 would hide a difference in what is computed."""
    exact = [block.detach().double().requires_grad_() for block in blocks]
    with fy.use_backend("reference"):
        value, grads = ours(exact, target)()
    mine, mine_grads = make(exact, target)()
    for got, truth in zip([mine, *mine_grads], [value, *grads], strict=True):
        error = ((got - truth).abs() / (1 + truth.abs())).max().item()
        if not error <= 1e-9:
            raise SystemExit(f"correctness gate is red: {name} is off by {error:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="with pytorch-crf and torch-struct")
    parser.add_argument("--seconds", type=float, default=3.0, help="a shape")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    announce()
    for batch, positions, k in SHAPES:
        shapes = [(batch, positions, k), (k, k), (k,), (k,)]
        blocks = [torch.randn(shape).requires_grad_() for shape in shapes]
        target = torch.randint(k, (batch, positions))
        gate("fenchel", ours, blocks, target)
        shape = f"{batch} x {positions} x {k}"
        peers = {"pytorch-crf": pytorch_crf, "torch-struct": torch_struct} if asked.peers else {}
        if positions > 100:  # products of K x K matrices in pairs: minutes and gigabytes
            peers.pop("torch-struct", None)
        if not peers:
            alone = cpu_medians({"fenchel": ours(blocks, target)}, asked.seconds)
            print(f"{shape:>14}  fenchel {1e3 * alone['fenchel']:8.3f} ms")
        for name, make in peers.items():
            gate(name, make, blocks, target)
            pair = {"fenchel": ours(blocks, target), name: make(blocks, target)}
            mine, theirs = cpu_medians(pair, asked.seconds).values()
            print(
                f"{shape:>14}  fenchel {1e3 * mine:8.3f} ms  {name:>12} {1e3 * theirs:9.3f} ms  "
                f"{theirs / mine:6.1f} x"
            )


if __name__ == "__main__":
    main()
