from __future__ import annotations

from torch import Tensor

from fenchel.maps._entmax import FAMILY
from fenchel.maps.declaration import declare


def entmax15(
    scores: Tensor, dim: int = -1, *, mask: Tensor | None = None, gamma: float | Tensor = 1.0
) -> Tensor:
    r"""Entmax at :math:`\alpha = 1.5`: sparse like sparsemax, smooth like softmax.

    .. math::
        \operatorname{entmax}_{1.5}(\theta) = \arg\max_{p \in \triangle}
        \langle \theta, p \rangle + \tfrac{4}{3} \sum_i (p_i - p_i^{1.5}), \qquad
        p_i = [\theta_i / 2 - \tau]_+^2

    One-hot exactly when the best score leads by 2 or more. ``-inf`` is a mask; a fully masked row
    is all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: a temperature, f(scores / gamma): a finite number above 0, or a tensor with one per
            row, with gradient.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> entmax15(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3260, 0.6740])

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """
    return ENTMAX15.run(scores, None, dim, mask, gamma)


ENTMAX15 = declare(
    "entmax15",
    entmax15,
    FAMILY,
    "entmax at α = 1.5: between softmax and sparsemax",
    fixed=1.5,
    omega="Tsallis",
    margin=lambda _: 2.0,
)
