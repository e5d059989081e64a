from __future__ import annotations

from fenchel.regularizers._tsallis import Tsallis


class Gini(Tsallis):
    r"""Gini's index: sparsemax and its loss.

    .. math:: \Omega(p) = \tfrac{1}{2} (\|p\|^2 - 1)

    The margin is 1, as for a support vector machine, but the loss is smooth; with two classes it is
    the modified Huber loss. It is :class:`Tsallis` at α = 2.

    Example:
        >>> fy.Gini().loss(torch.tensor([0.0, 0.0]), torch.tensor(1))
        tensor(0.2500)

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016.
    """

    def __init__(self) -> None:
        super().__init__(2.0)

    def __repr__(self) -> str:
        return "Gini()"
