"""Random chains, and all their members."""

from __future__ import annotations

import itertools

import torch

from fenchel.structures import SequenceScores

BLOCKS = list(itertools.product((None, "shared", "item", "each"), (False, True), (False, True)))


def make(rng, batch, positions, k, transitions=None, start=False, end=False, scale=1.0):
    def normal(*shape):
        return scale * torch.randn(*shape, generator=rng, dtype=torch.float64)

    squares = {
        None: None,
        "shared": (k, k),
        "item": (*batch, k, k),
        "each": (*batch, positions - 1, k, k),
    }[transitions]
    return SequenceScores(
        normal(*batch, positions, k),
        None if squares is None else normal(*squares),
        normal(k) if start else None,
        normal(*batch, k) if end else None,
    )


def members(structure, problem, row):
    """All members of an instance: indicator vectors, and their scores."""
    lists = list(structure.enumerate(problem, row))
    rows = torch.zeros(len(lists), problem.scores.shape[1], dtype=torch.float64)
    for at, parts in enumerate(lists):
        for part in parts:
            rows[at, part] += 1
    used = torch.where(rows > 0, rows * problem.scores[row].detach(), 0.0)
    return rows, used.sum(1)


def requiring(scores):
    return SequenceScores(*(None if x is None else x.requires_grad_() for x in scores))
