from __future__ import annotations

import math

from torch import Tensor

from fenchel._checks import no_bare_int
from fenchel.maps._groups import Groups
from fenchel.maps.declaration import Argument, declare


@no_bare_int("oscarmax", "lam")
def oscarmax(
    scores: Tensor,
    lam: float | Tensor = 0.01,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    gamma: float | Tensor = 1.0,
    lengths: Tensor | None = None,
) -> Tensor:
    r"""Sparse probabilities that are equal over groups, wherever their entries stand.

    .. math::
        \operatorname{oscarmax}(\theta) = \arg\max_{p \in \triangle} \langle \theta, p \rangle -
        \gamma \left( \tfrac{1}{2} \|p\|^2 + \lambda \sum_{i < j} \max(p_i, p_j) \right)

    It is exact: on the simplex no weight is negative, so the penalty is linear in the sorted
    weights, and isotonic regression of sorted scores, without absolute values and without clipping,
    comes before the projection. ``lam = 0`` is sparsemax; a large ``lam`` is uniform. ``-inf`` is a
    mask; a fully masked row is all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        lam: weight of the pairwise maxima, a number of at least 0 or a tensor that broadcasts
            against ``scores`` with size 1 along ``dim``, with gradient.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: weight of the whole regularizer, f(scores / gamma): a finite number above 0, or a
            tensor with one per row, with gradient.
        lengths: how many entries of each row count, integers of the shape of ``scores`` without
            ``dim``, or one for each entry of the first axis.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> oscarmax(torch.tensor([0.2, 0.1, -0.5]), lam=0.1)
        tensor([0.5000, 0.5000, 0.0000])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """
    return OSCARMAX.run(scores, lam, dim, mask, gamma, lengths)


OSCARMAX = declare(
    "oscarmax",
    oscarmax,
    Groups("oscarmax"),
    "similar scores get equal shares, wherever they stand",
    Argument(
        "lam",
        0.01,
        low=0.0,
        meaning="(0 is sparsemax)",
        examples=(0.0, 0.1, 0.7, 5.0),
        rough=(0.0, 0.7, 5.0),
    ),
    omega="Oscar",
    margin=lambda lam: math.inf if lam > 0 else 1.0,
    symmetric=True,
    lengths=True,
)
