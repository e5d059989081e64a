from __future__ import annotations

from typing import Any

from torch import Tensor

from fenchel.losses import fenchel_young_loss
from fenchel.losses.structured import refuse_class_options
from fenchel.nn._loss import LossArguments
from fenchel.regularizers import Regularizer, StructuredRegularizer
from fenchel.regularizers.registry import as_regularizer


class FenchelYoungLoss(LossArguments):
    r""":func:`fenchel.fenchel_young_loss` as a module: the loss of any :math:`\Omega`.

    Args:
        omega: a :class:`fenchel.Regularizer`, or the name of one, or a
            :class:`fenchel.StructuredRegularizer`. Its tensors, if it has any, are
            not parameters of this module: :class:`fenchel.nn.EntmaxLoss` learns its alpha.
        weight: one number a class, shape (C); a buffer.
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        dim: the class axis; by default 1, or 0 for 1-d scores.
        cost: number, vector (C) or matrix (C, C) of what a wrong class costs; a buffer if a tensor.

    Example:
        >>> from fenchel.nn import FenchelYoungLoss
        >>> hinge = FenchelYoungLoss(fy.Zero(), cost=1.0)
        >>> hinge(torch.tensor([[0.0, 0.5, 2.0]]), torch.tensor([1]))
        tensor(2.5000)

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """

    def __init__(
        self,
        omega: Regularizer | StructuredRegularizer | str,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        dim: int | None = None,
        cost: float | Tensor | None = None,
    ) -> None:
        super().__init__()
        structured = isinstance(omega, StructuredRegularizer)
        self.omega = omega if structured else as_regularizer("nn.FenchelYoungLoss", omega)
        self._take_arguments(weight, ignore_index, label_smoothing, reduction, dim, cost)
        if structured:
            refuse_class_options(
                "nn.FenchelYoungLoss",
                weight=weight is None,
                ignore_index=ignore_index == -100,
                label_smoothing=label_smoothing == 0.0,
                dim=dim is None,
            )

    def forward(
        self,
        scores: Any,
        target: Any,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The loss of ``scores`` against class indices or probabilities, or against structures.

        Args:
            scores: of classes, or of the parts of structures.
            target: classes, probabilities, or structures in their natural form.
            lengths: sizes of the instances, for structures.
            mask: boolean, True where a part may be used, for structures.
        """
        return fenchel_young_loss(
            scores, target, self.omega, lengths=lengths, mask=mask, **self._arguments()
        )

    def extra_repr(self) -> str:
        rest = self._arguments_repr()
        return f"{self.omega!r}, {rest}" if rest else f"{self.omega!r}"
