"""Small structures with all their members, and the answer by another solver."""

from __future__ import annotations

import cvxpy
import torch

from fenchel.structures import (
    Alignment,
    Assignment,
    DependencyTree,
    KSubsets,
    OneOf,
    Sequence,
    SequenceScores,
)


def draw(rng, *shape, scale=1.0):
    return scale * torch.randn(*shape, generator=rng, dtype=torch.float64)


def chain(rng, scale, transitions, ends=False):
    pairs = {None: None, "shared": (3, 3), "each": (2, 3, 3, 3)}[transitions]
    return SequenceScores(
        draw(rng, 2, 4, 3, scale=scale),
        None if pairs is None else draw(rng, *pairs, scale=scale),
        draw(rng, 3, scale=scale) if ends else None,
        draw(rng, 3, scale=scale) if ends else None,
    )


# name: (structure, scores from a generator and a scale)
_MAKERS = {
    "one of": (OneOf(), lambda g, s: draw(g, 2, 6, scale=s)),
    "subsets": (KSubsets(3), lambda g, s: draw(g, 2, 7, scale=s)),
    "chain": (Sequence(3), lambda g, s: chain(g, s, None)),
    "chain, shared": (Sequence(3), lambda g, s: chain(g, s, "shared", ends=True)),
    "chain, each": (Sequence(3), lambda g, s: chain(g, s, "each")),
    "tree": (DependencyTree(), lambda g, s: draw(g, 2, 4, 5, scale=s)),
    "projective": (DependencyTree(projective=True), lambda g, s: draw(g, 2, 4, 5, scale=s)),
    "assignment": (Assignment(), lambda g, s: draw(g, 2, 4, 4, scale=s)),
    "rectangle": (Assignment(), lambda g, s: draw(g, 2, 3, 5, scale=s)),
    "alignment": (Alignment(), lambda g, s: draw(g, 2, 4, 4, scale=s)),
}


def _members(structure, make):
    scores = make(torch.Generator().manual_seed(0), 1.0)
    return list(structure.enumerate(structure.problem("test", scores)))


# The same, with all members.
CASES = {name: (s, make, _members(s, make)) for name, (s, make) in _MAKERS.items()}


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
