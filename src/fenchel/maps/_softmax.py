from __future__ import annotations

from torch import Tensor

from fenchel.maps._entmax import FAMILY
from fenchel.maps.declaration import declare


def softmax(
    scores: Tensor, dim: int = -1, *, mask: Tensor | None = None, gamma: float | Tensor = 1.0
) -> Tensor:
    r"""The dense member of the family: entmax at :math:`\alpha = 1`.

    .. math::
        \operatorname{softmax}(\theta) = \arg\max_{p \in \triangle}
        \langle \theta, p \rangle - \sum_i p_i \log p_i, \qquad
        p_i = \frac{e^{\theta_i}}{\sum_j e^{\theta_j}}

    It differs from :func:`torch.softmax` in one place: a fully masked row gives zeros and zero
    gradient instead of NaN. ``-inf`` is a mask; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: a temperature, f(scores / gamma): a finite number above 0, or a tensor with one per
            row, with gradient.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> softmax(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0486, 0.3592, 0.5922])
    """
    return SOFTMAX.run(scores, None, dim, mask, gamma)


SOFTMAX = declare(
    "softmax",
    softmax,
    FAMILY,
    "dense: every entry gets mass",
    fixed=1.0,
    omega="Shannon",
    sparse=lambda _: False,
)
