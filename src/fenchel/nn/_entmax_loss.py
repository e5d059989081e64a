from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fenchel.losses import entmax_loss
from fenchel.nn._alpha import WithAlpha
from fenchel.nn._loss import LossArguments


class EntmaxLoss(WithAlpha, LossArguments):
    r""":func:`fenchel.entmax_loss` as a module, in the place of ``torch.nn.CrossEntropyLoss``.

    Args:
        alpha: a number in (0, ∞]; with ``learnable``, where learning starts.
        learnable: whether alpha is learned, as in :class:`fenchel.nn.Entmax`.
        shape: shape of a learned alpha, broadcast against the scores with size 1 along the class
            axis.
        weight: one number a class, shape (C); a buffer.
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        dim: the class axis; by default 1, or 0 for 1-d scores.
        cost: number, vector (C) or matrix (C, C) of what a wrong class costs; a buffer if a tensor.
        low: lower bound of a learned alpha, above 0.
        high: upper bound of a learned alpha, finite.

    Example:
        >>> from fenchel.nn import EntmaxLoss
        >>> loss = EntmaxLoss(alpha=1.5, ignore_index=0)
        >>> loss(torch.tensor([[3.0, 0.0, 1.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 2]))
        tensor(1.0996)

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """

    def __init__(
        self,
        alpha: float = 1.5,
        learnable: bool = False,
        shape: Sequence[int] = (),
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        dim: int | None = None,
        cost: float | Tensor | None = None,
        low: float = 1.0,
        high: float = 2.0,
    ) -> None:
        super().__init__(alpha, learnable, shape, low, high)
        self._take_arguments(weight, ignore_index, label_smoothing, reduction, dim, cost)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of ``scores`` against class indices or probabilities."""
        return entmax_loss(scores, target, self.alpha, **self._arguments())

    def extra_repr(self) -> str:
        alpha, learned = self._alpha_repr()
        rest = self._arguments_repr()
        return alpha + (f", {rest}" if rest else "") + learned
