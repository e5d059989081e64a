from __future__ import annotations

import math

from fenchel.regularizers._tsallis import Tsallis


class Zero(Tsallis):
    r"""No regularization: argmax (ties share), the maximum, and the perceptron loss.

    .. math:: \Omega(p) = 0, \qquad L(\theta; e_k) = \max_i \theta_i - \theta_k

    The margin is 0. With a ``cost`` the loss is the multi-class hinge loss. It is the limit of
    :class:`Tsallis` as α grows.

    Example:
        >>> fy.Zero().loss(torch.tensor([2.0, 0.5]), torch.tensor(1))
        tensor(1.5000)
    """

    def __init__(self) -> None:
        super().__init__(math.inf)

    def __repr__(self) -> str:
        return "Zero()"
