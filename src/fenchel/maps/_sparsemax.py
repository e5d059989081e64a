from __future__ import annotations

from torch import Tensor

from fenchel.maps._entmax import FAMILY
from fenchel.maps.declaration import declare


def sparsemax(
    scores: Tensor, dim: int = -1, *, mask: Tensor | None = None, gamma: float | Tensor = 1.0
) -> Tensor:
    r"""Euclidean projection of scores onto the probability simplex.

    .. math:: \operatorname{sparsemax}(\theta) = \arg\min_{p \in \triangle} \|p - \theta\|_2^2

    The answer is :math:`p_i = [\theta_i - \tau]_+` for the one :math:`\tau` that makes it sum to
    1, so low scores get probability exactly 0; it is one-hot exactly when the best score leads
    by 1 or more. It is entmax at :math:`\alpha = 2`. ``-inf`` is a mask; a fully masked row is
    all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: a temperature, f(scores / gamma): a finite number above 0, or a tensor with one per
            row, with gradient.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> sparsemax(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.2500, 0.7500])

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016.
    """
    return SPARSEMAX.run(scores, None, dim, mask, gamma)


SPARSEMAX = declare(
    "sparsemax",
    sparsemax,
    FAMILY,
    "the Euclidean projection onto the simplex",
    fixed=2.0,
    omega="Gini",
    margin=lambda _: 1.0,
)
