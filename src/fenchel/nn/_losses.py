"""The losses as modules, with the arguments of ``torch.nn.CrossEntropyLoss``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module

from fenchel._checks import FenchelError, check_dim, check_ignore_index, check_number
from fenchel.losses import (
    entmax15_loss,
    entmax_loss,
    fenchel_young_loss,
    sparsemax_loss,
)
from fenchel.losses.arguments import check_reduction, check_smoothing, refuse_class_options
from fenchel.nn._alpha import WithAlpha
from fenchel.regularizers import Regularizer, StructuredRegularizer
from fenchel.regularizers.registry import as_regularizer


class LossArguments(Module):
    """What all losses take from ``torch.nn.CrossEntropyLoss``, and a class axis and costs.

    ``weight`` and a tensor ``cost`` are buffers: they move with the module.
    """

    weight: Tensor | None
    cost: Any

    def _take_arguments(
        self,
        weight: Tensor | None,
        ignore_index: int,
        label_smoothing: float,
        reduction: str,
        dim: int | None,
        cost: float | Tensor | None,
    ) -> None:
        name = f"nn.{type(self).__name__}"
        if weight is not None and not isinstance(weight, Tensor):
            raise FenchelError(
                f"{name}: expected `weight` to be a torch.Tensor, but got {type(weight).__name__}."
            )
        self.register_buffer("weight", weight)
        self.ignore_index = int(check_ignore_index(name, ignore_index))
        self.label_smoothing = check_smoothing(name, label_smoothing)
        check_reduction(name, reduction)
        self.reduction = reduction
        self.dim = dim if dim is None else check_dim(name, dim)
        if cost is None or isinstance(cost, Tensor):
            self.register_buffer("cost", cost)
        else:
            self.cost = check_number(name, "cost", cost, 0.0, "", "a number or a torch.Tensor")

    def _arguments(self) -> dict[str, Any]:
        return {
            "weight": self.weight,
            "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing,
            "reduction": self.reduction,
            "dim": self.dim,
            "cost": self.cost,
        }

    def _arguments_repr(self) -> str:
        """The arguments that differ from their defaults, tensors by their shapes."""
        defaults = {
            "weight": None,
            "ignore_index": -100,
            "label_smoothing": 0.0,
            "reduction": "mean",
            "dim": None,
            "cost": None,
        }
        parts = []
        for key, value in self._arguments().items():
            if isinstance(value, Tensor):
                parts.append(f"{key}=<{tuple(value.shape)}>")
            elif value != defaults[key]:
                parts.append(f"{key}={value!r}")
        return ", ".join(parts)


class FenchelYoungLoss(LossArguments):
    r""":func:`fenchel.fenchel_young_loss` as a module: the loss of any :math:`\Omega`.

    Args:
        omega: a :class:`fenchel.Regularizer`, or the name of one, or a
            :class:`fenchel.StructuredRegularizer`. Its tensors, if it has any, are
            not parameters of this module: :class:`fenchel.nn.EntmaxLoss` learns its alpha.
        weight: one number per class, shape (C); a buffer.
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


class EntmaxLoss(WithAlpha, LossArguments):
    r""":func:`fenchel.entmax_loss` as a module, instead of ``torch.nn.CrossEntropyLoss``.

    Args:
        alpha: a number in (0, ∞]; with ``learnable``, where learning starts.
        learnable: whether alpha is learned, as in :class:`fenchel.nn.Entmax`.
        shape: shape of a learned alpha, broadcast against the scores with size 1 along the class
            axis.
        weight: one number per class, shape (C); a buffer.
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


class Entmax15Loss(LossArguments):
    r""":func:`fenchel.entmax15_loss` as a module, instead of ``CrossEntropyLoss``.

    Args:
        weight: one number per class, shape (C); a buffer.
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


class SparsemaxLoss(LossArguments):
    r""":func:`fenchel.sparsemax_loss` as a module, instead of ``CrossEntropyLoss``.

    Args:
        weight: one number per class, shape (C); a buffer.
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        dim: the class axis; by default 1, or 0 for 1-d scores.
        cost: number, vector (C) or matrix (C, C) of what a wrong class costs; a buffer if a tensor.

    Example:
        >>> from fenchel.nn import SparsemaxLoss
        >>> SparsemaxLoss()(torch.tensor([[0.0, 0.5, 0.0]]), torch.tensor([2]))
        tensor(0.5833)
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
        return sparsemax_loss(scores, target, **self._arguments())

    def extra_repr(self) -> str:
        return self._arguments_repr()
