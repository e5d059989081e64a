from __future__ import annotations

from torch import Tensor

from fenchel._checks import no_bare_int
from fenchel.maps import _groups

OSCARMAX = _groups.register("oscarmax")


@no_bare_int("oscarmax", "lam")
def oscarmax(
    scores: Tensor,
    lam: float | Tensor = 0.01,
    gamma: float | Tensor = 1.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
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
        gamma: weight of the whole regularizer, a number above 0 or a tensor as ``lam``, with
            gradient: f(scores / gamma).
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
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
    return _groups.apply("oscarmax", OSCARMAX, scores, lam, gamma, dim, mask, lengths)
