from __future__ import annotations

from torch import Tensor

from fenchel._checks import no_bare_int
from fenchel.maps._groups import Groups
from fenchel.maps.declaration import Argument, declare


@no_bare_int("fusedmax", "lam")
def fusedmax(
    scores: Tensor,
    lam: float | Tensor = 0.1,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    gamma: float | Tensor = 1.0,
    lengths: Tensor | None = None,
) -> Tensor:
    r"""Sparse probabilities that are equal over stretches of neighbours.

    .. math::
        \operatorname{fusedmax}(\theta) = \arg\max_{p \in \triangle} \langle \theta, p \rangle -
        \gamma \left( \tfrac{1}{2} \|p\|^2 + \lambda \sum_i |p_{i+1} - p_i| \right)

    It is the projection onto the simplex of the fused lasso of ``scores / gamma``, exactly, in
    O(n). ``lam = 0`` is sparsemax; a large ``lam`` is uniform. Neighbours with a masked entry
    between them are no neighbours: padding pulls at nothing. ``-inf`` is a mask; a fully masked row
    is all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype; the order along ``dim`` counts.
        lam: weight of the total variation, a number of at least 0 or a tensor that broadcasts
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
        >>> fusedmax(torch.tensor([0.1, 1.0, 0.9, 1.1, -1.0]))
        tensor([0.0000, 0.3333, 0.3333, 0.3333, 0.0000])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """
    return FUSEDMAX.run(scores, lam, dim, mask, gamma, lengths)


FUSEDMAX = declare(
    "fusedmax",
    fusedmax,
    Groups("fusedmax"),
    "neighbours get equal shares: the fused lasso",
    Argument(
        "lam",
        0.1,
        low=0.0,
        meaning="(0 is sparsemax)",
        examples=(0.0, 0.01, 0.7, 5.0),
        rough=(0.0, 0.7, 5.0),
    ),
    omega="FusedLasso",
    margin=lambda lam: 1 + 3 * lam,
    symmetric=False,
    lengths=True,
)
