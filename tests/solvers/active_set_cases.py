"""Small structures with all their members, and the answer by another solver."""

from __future__ import annotations

import cvxpy
import torch

from fenchel.testing._cases import blocks, rebuild
from tests.structures.registry import SOLVED


def draw(rng, *shape, scale=1.0):
    return scale * torch.randn(*shape, generator=rng, dtype=torch.float64)


def _entry(case):
    """The structure, its scores from a generator and a scale, and all members of an instance."""

    def make(rng, scale):
        return rebuild(case.scores, [draw(rng, *x.shape, scale=scale) for x in blocks(case.scores)])

    return case.structure, make, list(case.structure.enumerate(case.problem))


CASES = {name: _entry(case) for name, case in SOLVED.items()}


def counts(members, parts):
    """Members as vectors of counts (members, parts)."""
    rows = torch.zeros(len(members), parts, dtype=torch.float64)
    for row, member in zip(rows, members, strict=True):
        for part in member:
            row[part] += 1
    return rows


def true_means(members, n_unary, scores):
    """The means of the unary parts by an interior-point solver on the weights of all members."""
    p = cvxpy.Variable(len(members), nonneg=True)
    unary = members[:, :n_unary].numpy()
    value = (members @ scores).numpy() @ p - 0.5 * cvxpy.sum_squares(unary.T @ p)
    problem = cvxpy.Problem(cvxpy.Maximize(value), [cvxpy.sum(p) == 1])
    problem.solve(
        solver="CLARABEL", tol_gap_abs=1e-14, tol_gap_rel=1e-14, tol_feas=1e-14, max_iter=200
    )
    return torch.from_numpy(unary.T @ p.value)
