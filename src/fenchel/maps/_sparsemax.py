from __future__ import annotations

import sys

from torch import Tensor

from fenchel._checks import check_positive
from fenchel.maps._entmax import ENTMAX
from fenchel.maps._prepare import POSITIVE, apply, prepare


def sparsemax(
    scores: Tensor, dim: int = -1, *, mask: Tensor | None = None, gamma: float = 1.0
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
        gamma: a temperature, a positive finite number: the map of scores / gamma.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> sparsemax(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.2500, 0.7500])

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016.
    """
    scores, dim = prepare("sparsemax", scores, dim, mask)
    temperature = check_positive("sparsemax", "gamma", gamma, sys.float_info.max, POSITIVE)
    return apply(ENTMAX, scores, 2.0, dim, temperature)
