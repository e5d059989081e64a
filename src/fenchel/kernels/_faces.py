from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

#: What ``Faces.status`` means.
SOLVED, MAX_ITER, STALLED, INFEASIBLE = range(4)


class Faces(NamedTuple):
    """Where SparseMAP ended in each instance: all float64, the lists int32.

    Members of weight 0 may follow those that have a weight: they are on the same face, and span it.
    ``matrix`` is the derivative of the weights in the members' scores, as long as no member enters
    or leaves. Status: the gap is within the tolerance; it is not, and no iterations were left; nor
    could progress be told from rounding errors any more; no member has a finite score.
    """

    means: Tensor  # shape: (instances, parts)
    lists: Tensor  # shape: (instances, members, longest), -1 in the places left
    weights: Tensor  # shape: (instances, members), 0 in the places left
    matrix: Tensor  # shape: (instances, members, members), 0 in the places left
    gap: Tensor  # shape: (instances)
    iterations: Tensor  # shape: (instances)
    status: Tensor  # shape: (instances)
