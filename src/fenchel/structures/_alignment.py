from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_number
from fenchel.structures._structure import BuiltIn
from fenchel.structures.matrix import all_finite, inside_cells, matrix_problem
from fenchel.structures.problem import Problem

_STEPS = ((1, 1), (1, 0), (0, 1))


class Alignment(BuiltIn):
    r"""Monotonic alignments of two sequences: the paths of dynamic time warping.

    A path goes from cell :math:`(1, 1)` to cell :math:`(m, n)` by steps :math:`(1, 0)`,
    :math:`(0, 1)` and :math:`(1, 1)`; its score is the sum of the scores of all its cells, both
    corners included. There are Delannoy(m-1, n-1) of them. The best one is DTW, and the maximum
    smoothed by an entropy is soft-DTW (:func:`fenchel.dtw` and :func:`fenchel.soft_dtw` take
    costs instead of scores). At every cell but the first the maximum over the cells before it is
    smoothed; with ``"l2"`` a cell with one cell before it thus has :math:`-\gamma/2`.

    Scores are (*batch, m, n), higher is better, and so are means; ``-inf`` is a cell that no path
    may use. ``lengths`` (*batch, 2) holds the rows and columns of each instance. A target is a path
    as (row, column) pairs, integers (*batch, longest, 2), filled up with -1; or a matrix of 0s and
    1s in the shape of the scores, boolean or of a floating dtype, such as ``argmax`` gives.

    Args:
        band: how far, in cells along the shorter side, a path may be from the straight line
            between the corners (Sakoe and Chiba's band, along the slope of each instance); None
            for any path. In 0-based cells, :math:`|j - i \frac{n-1}{m-1}| \le` ``band`` if
            :math:`n \le m`, and the same with the sides exchanged otherwise. From 1/2 on there is
            a path for any m and n; 0 leaves the diagonal of a square. On rectangles tslearn's
            ``sakoe_chiba_radius`` means something else: the band runs along the diagonal of the
            index and is widened by :math:`|m - n|` cells on one side. On squares the two agree.

    Example:
        >>> scores = torch.tensor([[3.0, 0.0, 0.0], [2.0, 0.0, 1.0]])
        >>> Alignment().argmax(scores)
        tensor([[1., 0., 0.],
                [1., 1., 1.]])

    References:
        Sakoe & Chiba. Dynamic Programming Algorithm Optimization for Spoken Word Recognition. 1978.
        Cuturi & Blondel. Soft-DTW: a Differentiable Loss Function for Time-Series. ICML 2017.
        Mensch & Blondel. Differentiable Dynamic Programming for Structured Prediction and
        Attention. ICML 2018.
    """

    event_dim = 2
    smoothings = ("entropy", "l2")

    def __init__(self, band: float | None = None) -> None:
        self.band = band
        if band is not None:
            check_number("Alignment", "band", band, 0.0, "(cells beside the line, None for any)")

    def __repr__(self) -> str:
        return "Alignment()" if self.band is None else f"Alignment(band={self.band})"

    def enumerate(self, problem: Problem, row: int = 0) -> Iterator[tuple[int, ...]]:
        """All paths of instance ``row`` as lists of parts, which are i * columns + j."""
        columns = problem.layout[1]
        m, n = problem.sizes[row].tolist()
        inside = torch.ones(m, n, dtype=torch.bool)
        if self.band is not None:
            inside = _band(problem.sizes[row : row + 1], m, n, self.band)[0]
        allowed = inside.tolist()

        def onward(i: int, j: int) -> Iterator[tuple[int, ...]]:
            if not allowed[i][j]:
                return
            if (i, j) == (m - 1, n - 1):
                yield (i * columns + j,)
            for di, dj in _STEPS:
                if i + di < m and j + dj < n:
                    for rest in onward(i + di, j + dj):
                        yield (i * columns + j, *rest)

        return onward(0, 0)

    def problem(self, name: str, scores: Any, lengths: Any = None, mask: Any = None) -> Problem:
        problem = matrix_problem(name, scores, lengths, mask)
        if self.band is not None:
            m, n = problem.layout
            near = _band(problem.sizes, m, n, self.band)
            out = (inside_cells(problem.sizes, m, n) & ~near).flatten(1)
            problem = dataclasses.replace(
                problem, scores=problem.scores.masked_fill(out, -math.inf)
            )
        if not all_finite(problem.scores):
            self.best_parts(problem, problem.scores)  # raises if there is no path
        return problem

    def target_parts(self, name: str, problem: Problem, target: Any) -> Tensor:
        m, n = problem.layout
        batch = tuple(problem.batch_shape)
        shape = tuple(target.shape) if isinstance(target, Tensor) else None
        if isinstance(target, Tensor) and (
            target.is_floating_point() or target.dtype == torch.bool
        ):
            if shape != (*batch, m, n):
                raise FenchelError(_expected(name, batch, m, n, str(shape)))
            values = target.detach().to("cpu", torch.float64).reshape(-1, m * n)
            if not bool(((values == 0) | (values == 1)).all()):
                raise FenchelError(f"{name}: expected 0s and 1s in `target`, but got other values.")
            cells = [row.nonzero().squeeze(1) for row in values]
            parts = torch.nn.utils.rnn.pad_sequence(
                [*cells, torch.zeros(m + n - 1, dtype=torch.int64)], True, -1
            )[:-1]
            pairs = torch.stack([parts.div(n, rounding_mode="floor"), parts % n], -1)
            pairs = torch.where((parts < 0).unsqueeze(-1), -1, pairs)
        else:
            if shape is None or shape[:-2] != batch or len(shape) < 2 or shape[-1] != 2:
                got = type(target).__name__ if shape is None else str(shape)
                raise FenchelError(_expected(name, batch, m, n, got))
            pairs = target.detach().long().cpu().reshape(math.prod(batch), shape[-2], 2)
        bad = ~_are_paths(pairs, problem.sizes)
        if bool(bad.any()):
            row = int(bad.long().argmax())
            height, width = problem.sizes[row].tolist()
            raise FenchelError(
                f"{name}: expected a path from (0, 0) to ({height - 1}, {width - 1}) by steps "
                f"(1, 0), (0, 1) and (1, 1) in `target`, filled up with -1, but instance {row} of "
                "the batch is none."
            )
        return torch.where(pairs[..., 0] < 0, -1, pairs[..., 0] * n + pairs[..., 1])

    def to_target(self, problem: Problem, parts: Tensor) -> Tensor:
        n = problem.layout[1]
        last = torch.where(parts < 0, problem.scores.shape[1], parts).sort(1).values
        pairs = torch.stack([last.div(n, rounding_mode="floor"), last % n], -1)
        there = (last < problem.scores.shape[1]).unsqueeze(-1)
        return torch.where(there, pairs, -1).reshape(*problem.batch_shape, parts.shape[1], 2)

    def n_choices(self, problem: Problem, parts: Tensor) -> Tensor:
        return (parts >= 0).sum(1) - 1  # a predecessor for each cell but the first

    def kind(self, problem: Problem) -> str:
        return "alignment"

    def infeasible(self, row: int) -> str:
        remedy = "mask fewer cells"
        if self.band is not None:
            remedy += f" or widen the band of {self.band} (from 0.5 on it always holds a path)"
        return (
            "Alignment: expected a path of finite scores from corner to corner, but instance "
            f"{row} of the batch has none; {remedy}."
        )


def _band(sizes: Tensor, m: int, n: int, band: float) -> Tensor:
    """Which cells are near the line between the corners, boolean (instances, m, n)."""
    rows, columns = (sizes - 1).reshape(-1, 2, 1, 1).unbind(1)
    i, j = torch.arange(m).unsqueeze(1), torch.arange(n)
    # Whole numbers, so that cells on the edge are in; a single row or column is the line itself.
    # In float64: a band wider than any matrix must not overflow.
    away = (j * rows - i * columns).abs().double()
    return away <= float(band) * torch.maximum(rows, columns)


def _are_paths(pairs: Tensor, sizes: Tensor) -> Tensor:
    """Which lists of cells (instances, longest, 2) are paths of their instances."""
    if pairs.shape[1] == 0:
        return torch.zeros(len(pairs), dtype=torch.bool)
    there = (pairs >= 0).all(-1)
    length = there.sum(1)
    good = (there | (pairs == -1).all(-1)).all(1) & (length > 0)
    good &= (there[:, 1:] <= there[:, :-1]).all(1)  # -1 only at the end
    last = pairs[torch.arange(len(pairs)), (length - 1).clamp(min=0)]
    good &= (pairs[:, 0] == 0).all(1) & (last == sizes - 1).all(1)
    steps = pairs[:, 1:] - pairs[:, :-1]
    step = (steps >= 0).all(-1) & (steps <= 1).all(-1) & (steps.sum(-1) > 0)
    return good & (step | ~there[:, 1:]).all(1)


def _expected(name: str, batch: tuple[int, ...], m: int, n: int, got: str) -> str:
    cells = ", ".join([*map(str, batch), "longest", "2"])
    return (
        f"{name}: expected `target` as (row, column) pairs, an integer tensor of shape ({cells}), "
        f"or as 0s and 1s, boolean or floating, of shape {(*batch, m, n)}, but got {got}."
    )
