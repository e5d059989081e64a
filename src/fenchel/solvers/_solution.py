from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class SimplexSolution:
    r"""A point of the simplex for every row of scores, and how good it is.

    Args:
        p: the point, of the shape and dtype of the scores; no graph is attached.
        gap: float64, one number a row: the Frank-Wolfe gap :math:`\max_j g_j - \langle g, p
            \rangle` at :math:`g = \theta - \nabla\Omega(p)`. The value at ``p`` is below the
            maximum by at most that much.
        iterations: int64, steps taken in a row.
        converged: bool, whether a row's gap is within the tolerance.
    """

    p: Tensor  # shape: (*rows, n)
    gap: Tensor  # shape: (*rows)
    iterations: Tensor  # shape: (*rows)
    converged: Tensor  # shape: (*rows)
