from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError, check_int
from fenchel.kernels import SOLVED
from fenchel.structures.problem import Problem


@dataclass(frozen=True)
class SparseDistribution:
    r"""A few members of a structure with weights, for every instance of a batch.

    The means are unique; the weights are one way to mix them, and other members could do as well.

    Args:
        means: the means of all parts, float64, differentiable in the scores.
        structures: the members as lists of parts, int64, with -1 in the places that are left. A
            part may occur more than once.
        weights: their weights, float64, above 0 and of sum 1, with 0 in the places that are left;
            differentiable in the scores, as long as no member enters or leaves.
        gap: the Wolfe gap :math:`\max_y \langle \theta - \mu, y - \mu \rangle`, float64. The value
            at these weights is below the maximum by at most that much.
        iterations: int64, how many members entered after the first.
        status: int64: 0 if the gap is within the tolerance, 1 if iterations ran out, 2 if rounding
            errors kept it from getting there.
        problem: what was solved.

    From :meth:`fenchel.SparseMAP.solve` the means are in the form of the scores, and the instances
    have the axes of the batch.
    """

    means: Any  # shape: (instances, parts)
    structures: Tensor  # shape: (instances, members, longest)
    weights: Tensor  # shape: (instances, members)
    gap: Tensor  # shape: (instances)
    iterations: Tensor  # shape: (instances)
    status: Tensor  # shape: (instances)

    problem: Problem | None = field(default=None, repr=False)

    @property
    def sizes(self) -> Tensor:
        """int64, how many members have a weight; shape: (instances)."""
        return (self.weights > 0).sum(-1)

    def structure(self, k: int) -> Any:
        """Member ``k`` of every instance as 0s and 1s in the form of the scores; 0s if it has none.

        Args:
            k: from 0 to the largest of ``sizes``, less 1.
        """
        assert self.problem is not None
        most = self.structures.shape[-2]
        if not -most <= check_int("SparseDistribution.structure", "k", k) < most:
            raise FenchelError(
                f"SparseDistribution.structure: expected `k` below {most}, the most members that "
                f"an instance has, but got {k}."
            )
        lists = self.structures.reshape(-1, *self.structures.shape[-2:])[:, k]
        return self.problem.means(self.problem.indicator(lists))

    @property
    def converged(self) -> Tensor:
        """bool, whether an instance's gap is within the tolerance; shape: (instances)."""
        return self.status == SOLVED
