"""Dependency trees against torch-struct: ``python -m benchmarks.structures_tree``.

A step is the log-partition and its gradient, which is the marginals. CPU time of this process on
one thread, in turns; the answers are compared first, and how far the peer is off is printed.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from fenchel.structures import DependencyTree

BATCH = 64


def peer_scores(scores: Tensor) -> Tensor:
    """(batch, head, word) with root scores on the diagonal, as torch-struct has them."""
    arcs = scores[..., 1:].transpose(1, 2).clone()
    arcs.diagonal(dim1=1, dim2=2).copy_(scores[..., 0])
    return arcs


def peer(tree: DependencyTree, arcs: Tensor) -> tuple[Tensor, Tensor]:
    import torch_struct

    if tree.projective:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # It writes into its scores, which a leaf does not allow.
            leaf = arcs.requires_grad_()
            crf = torch_struct.DependencyCRF(leaf * 1.0, multiroot=not tree.single_root)
            value = crf.partition
            return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]
    crf = torch_struct.NonProjectiveDependencyCRF(arcs, multiroot=not tree.single_root)
    return crf.partition, crf.marginals


def ours(tree: DependencyTree, scores: Tensor) -> tuple[Tensor, Tensor]:
    leaf = scores.detach().requires_grad_()
    problem = tree.problem("benchmark", leaf)
    value = problem.values(tree.smoothed_max(problem, "entropy", 1.0))
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def cpu_seconds(work: list[Callable[[], object]], rounds: int = 7) -> list[float]:
    times: list[list[float]] = [[] for _ in work]
    for run in work:
        run()
    for _ in range(rounds):
        for run, seen in zip(work, times, strict=True):
            start = time.process_time()
            run()
            seen.append(time.process_time() - start)
    return [statistics.median(seen) for seen in times]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| trees | n | peer's log Z is off by | marginals off by | peer ms | ours ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    for projective in (False, True):
        for single in (True, False):
            tree = DependencyTree(single, projective)
            for n in (12, 40):
                scores = torch.randn(BATCH, n, n + 1)
                arcs = peer_scores(scores)
                # The truth is ours in float64, which tests compare with enumeration and mpmath.
                value, mean = ours(tree, scores.double())
                got = ours(tree, scores)
                torch.testing.assert_close(got[0].double(), value, rtol=1e-6, atol=1e-5)
                torch.testing.assert_close(got[1].double(), mean, rtol=0, atol=1e-6)
                z, p = peer(tree, arcs.clone())
                z_off = float((z.double().reshape(-1) - value).abs().max())
                p_off = float((p.double() - peer_scores(mean)).abs().max())
                theirs, mine = cpu_seconds(
                    [
                        lambda tree=tree, arcs=arcs: peer(tree, arcs.clone()),
                        lambda tree=tree, scores=scores: ours(tree, scores),
                    ]
                )
                print(
                    f"| {tree!r} | {n} | {z_off:.1e} | {p_off:.1e} | {1e3 * theirs:.2f} "
                    f"| {1e3 * mine:.2f} | {theirs / mine:.1f} |"
                )


if __name__ == "__main__":
    main()
