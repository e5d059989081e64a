"""SparseMAP of a batch of 64, forward and backward: ``python -m benchmarks.structures_sparsemap``.

CPU time of this process on one thread, and elapsed time on two. A row is timed only if its gaps are
small. The goal is a tenth of eight times what other libraries take for a batch of 8 on one thread.
``--large`` adds single long chains and large trees.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from fenchel.solvers.sparsemap import sparse_map, sparse_map_means
from fenchel.structures import Assignment, DependencyTree, Sequence, SequenceScores, Structure

BATCH = 64
GOALS = {"chain T=20 K=5": 4.0, "tree n=12": 4.8, "assignment 12x12": 2.4}  # milliseconds


def draw(scale: float, *shape: int) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def small(scale: float) -> dict[str, tuple[Structure, object]]:
    pairs = draw(scale, 5, 5)
    return {
        "chain T=20 K=5": (Sequence(5), SequenceScores(draw(scale, BATCH, 20, 5), pairs)),
        "tree n=12": (DependencyTree(), draw(scale, BATCH, 12, 13)),
        "assignment 12x12": (Assignment(), draw(scale, BATCH, 12, 12)),
    }


def large(scale: float) -> dict[str, tuple[Structure, object]]:
    pairs = draw(scale, 50, 50)
    return {
        "chain T=1000 K=50": (Sequence(50), SequenceScores(draw(scale, 1, 1000, 50), pairs)),
        "tree n=100": (DependencyTree(), draw(scale, 1, 100, 101)),
    }


def step(structure: Structure, scores: object) -> Callable[[], None]:
    """Scores to means and back to the gradient of the scores, through all the shells."""
    tensors = [x for x in (scores if isinstance(scores, tuple) else (scores,)) if x is not None]
    leaves = [x.clone().requires_grad_() for x in tensors]
    given = SequenceScores(*leaves) if isinstance(scores, tuple) else leaves[0]
    problem = structure.problem("benchmark", given)
    grad = torch.randn(problem.scores.shape, dtype=torch.float64)

    def run() -> None:
        problem = structure.problem("benchmark", given)
        torch.autograd.grad(sparse_map_means(structure, problem), leaves, grad)

    return run


def median(run: Callable[[], None], clock: Callable[[], float], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = clock()
        run()
        times.append(clock() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    asked = parser.parse_args()
    print(
        "| structure | scale | members | iterations | gap | ms, 1 thread | ms, 2 threads | goal |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for scale in (0.3, 1.0, 3.0):
        cases = small(scale) | (large(scale) if asked.large and scale >= 1 else {})
        for name, (structure, scores) in cases.items():
            torch.set_num_threads(1)
            solution = sparse_map(structure, structure.problem("benchmark", scores))
            if not bool(solution.converged.all()):
                raise SystemExit(f"correctness gate is red: {name} has gap {solution.gap.max()}")
            run = step(structure, scores)
            run()
            rounds = 21 if name in GOALS else 3
            one = median(run, time.process_time, rounds)
            torch.set_num_threads(2)
            two = median(run, time.perf_counter, rounds)
            members = (solution.weights > 0).sum(1).double().mean().item()
            iterations = solution.iterations.double().mean().item()
            goal = GOALS.get(name, "") if scale == 1 else ""
            print(
                f"| {name} | {scale:g} | {members:.1f} | {iterations:.1f} | "
                f"{solution.gap.max().item():.0e} | {one:.2f} | {two:.2f} | {goal} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
