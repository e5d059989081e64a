from __future__ import annotations

from fenchel.regularizers._tsallis import Tsallis


class Shannon(Tsallis):
    r"""Shannon's entropy: softmax, log-sum-exp and the logistic loss.

    .. math:: \Omega(p) = \sum_i p_i \log p_i, \qquad \Omega^*(\theta) = \log \sum_i e^{\theta_i}

    It has no margin: the loss is 0 only in the limit. It is :class:`Tsallis` at α = 1.

    Example:
        >>> fy.Shannon().loss(torch.tensor([0.0, 0.0]), torch.tensor(1))
        tensor(0.6931)
    """

    def __init__(self) -> None:
        super().__init__(1.0)

    def __repr__(self) -> str:
        return "Shannon()"
