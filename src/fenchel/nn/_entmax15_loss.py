from __future__ import annotations

from torch import Tensor

from fenchel.losses import entmax15_loss
from fenchel.nn._loss import LossArguments


class Entmax15Loss(LossArguments):
    r""":func:`fenchel.entmax15_loss` as a module, in the place of ``CrossEntropyLoss``.

    Args:
        weight: one number a class, shape (C); a buffer.
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        dim: the class axis; by default 1, or 0 for 1-d scores.
        cost: number, vector (C) or matrix (C, C) of what a wrong class costs; a buffer if a tensor.

    Example:
        >>> from fenchel.nn import Entmax15Loss
        >>> Entmax15Loss()(torch.tensor([[3.0, 0.0, 1.0]]), torch.tensor([0]))
        tensor(0.)
    """

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        dim: int | None = None,
        cost: float | Tensor | None = None,
    ) -> None:
        super().__init__()
        self._take_arguments(weight, ignore_index, label_smoothing, reduction, dim, cost)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of ``scores`` against class indices or probabilities."""
        return entmax15_loss(scores, target, **self._arguments())

    def extra_repr(self) -> str:
        return self._arguments_repr()
