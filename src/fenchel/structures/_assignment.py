from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.structures._structure import BuiltIn, check_integers
from fenchel.structures.matrix import all_finite, matrix_problem
from fenchel.structures.problem import Problem


class Assignment(BuiltIn):
    r"""One-to-one assignments of rows to columns; the corners of the Birkhoff polytope if square.

    .. math:: \mathcal Y = \{Y \in \{0, 1\}^{n \times m} : Y 1 = 1,\ Y^\top 1 \le 1\}
        \quad (n \le m)

    and the transpose of that if :math:`n > m`: every row of the shorter side is used exactly once,
    and every one of the longer side at most once. The best one is found along shortest augmenting
    paths, :math:`O(n^2 m)`. ``-inf`` is a pair that must not be used.

    Scores are (*batch, n, m) and so are means; ``lengths`` (*batch, 2) holds the rows and columns
    of each instance. A target is the column of each row, (*batch, n), -1 for a row without one
    (rows that are left over if there are more of them than columns, and padding).

    To sum over all assignments is to compute a permanent, which is #P-hard: there is no
    log-partition here. :class:`fenchel.SparseMAP` needs only the best assignment, and
    :func:`fenchel.sinkhorn` replaces the entropy of assignments by that of the pairs.

    Example:
        >>> scores = torch.tensor([[4.0, 5.0, 0.0], [3.0, 5.5, 0.0]])
        >>> Assignment().argmax(scores)
        tensor([[1., 0., 0.],
                [0., 1., 0.]])

    References:
        Jonker & Volgenant. A Shortest Augmenting Path Algorithm for Dense and Sparse Linear
        Assignment Problems. Computing 1987.
        Crouse. On Implementing 2D Rectangular Assignment Algorithms. IEEE TAES 2016.
    """

    event_dim = 2

    def enumerate(self, problem: Problem, row: int = 0) -> Iterator[tuple[int, ...]]:
        """All assignments of instance ``row`` as lists of parts, which are i * columns + j."""
        columns = problem.layout[1]
        n, m = problem.sizes[row].tolist()
        if n <= m:
            for places in itertools.permutations(range(m), n):
                yield tuple(i * columns + j for i, j in enumerate(places))
        else:
            for places in itertools.permutations(range(n), m):
                yield tuple(sorted(i * columns + j for j, i in enumerate(places)))

    def problem(self, name: str, scores: Any, lengths: Any = None, mask: Any = None) -> Problem:
        problem = matrix_problem(name, scores, lengths, mask)
        if not all_finite(problem.scores):
            self.best_parts(problem, problem.scores)  # raises if a matching is impossible
        return problem

    def target_parts(self, name: str, problem: Problem, target: Any) -> Tensor:
        n, m = problem.layout
        what = "the column of each row"
        columns = check_integers(name, target, (*problem.batch_shape, n), what).reshape(-1, n)
        rows = torch.arange(n)
        there = rows < problem.sizes[:, :1]
        used = there & (columns >= 0)
        wrong = used & (columns >= problem.sizes[:, 1:])
        wrong |= there & (columns < -1)
        places = torch.where(used & ~wrong, columns, m)
        times = torch.zeros(len(columns), m + 1, dtype=torch.int64)
        times = times.scatter_add(1, places, torch.ones_like(places))[:, :m]
        bad = wrong.any(1) | (times > 1).any(1) | (used.sum(1) != problem.sizes.amin(1))
        if bool(bad.any()):
            row = int(bad.long().argmax())
            height, width = problem.sizes[row].tolist()
            raise FenchelError(
                f"{name}: expected an assignment in `target`: {min(height, width)} of the "
                f"{height} rows with a column of their own below {width}, the other rows with -1; "
                f"but instance {row} of the batch has {columns[row, :height].tolist()}."
            )
        return torch.where(used, rows * m + columns, -1)

    def to_target(self, problem: Problem, parts: Tensor) -> Tensor:
        cells = problem.indicator(parts).reshape(-1, *problem.layout)
        columns = torch.where(cells.any(2), cells.argmax(2), -1)
        return columns.reshape(*problem.batch_shape, problem.layout[0])

    def kind(self, problem: Problem) -> str:
        return "assignment"

    def infeasible(self, row: int) -> str:
        return (
            f"Assignment: expected a finite score for every row of the shorter side in some "
            f"one-to-one assignment, but instance {row} of the batch has none; mask fewer pairs."
        )

    def no_smoothing(self, omega: str) -> str:
        return (
            "Assignment: summing over all assignments is #P-hard (it is a permanent), so there is "
            f"no smoothing {omega!r}; use SparseMAP, which needs only the best assignment, or "
            "`sinkhorn` for an entropic relaxation."
        )
