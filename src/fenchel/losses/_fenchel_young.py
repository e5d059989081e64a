from __future__ import annotations

from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.losses._cross_entropy_shape import rowwise
from fenchel.losses.arguments import check_reduction, refuse_class_options
from fenchel.regularizers import Regularizer, StructuredRegularizer
from fenchel.regularizers.registry import as_regularizer


def fenchel_young_loss(
    scores: Any,
    target: Any,
    omega: Regularizer | StructuredRegularizer | str,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    dim: int | None = None,
    cost: float | Tensor | None = None,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    r"""The Fenchel-Young loss of any :math:`\Omega`, with the arguments of ``F.cross_entropy``.

    .. math:: L_\Omega(\theta; y) = \Omega^*(\theta) + \Omega(y) - \langle \theta, y \rangle,
        \qquad \nabla_\theta L_\Omega = \hat y_\Omega(\theta) - y

    It is convex in the scores, never negative, and 0 exactly when the prediction is the target.
    With probabilities as targets the minimum is 0 too; with :class:`fenchel.Shannon` it is then the
    Kullback-Leibler divergence, cross-entropy minus the target's own entropy.

    Args:
        scores: shape (C), (N, C) or (N, C, d₁, …), or any with ``dim``. ``-inf`` is a mask: on a
            wrong class it changes nothing, on the right one the loss is ``inf``.
        target: class indices (int64, the shape of ``scores`` without the class axis) or
            probabilities (floating, the shape of ``scores``). On the CPU their values are checked.
        omega: a :class:`fenchel.Regularizer`, or the name of one: ``"shannon"``, ``"gini"``, ….
            Or a :class:`fenchel.StructuredRegularizer` such as ``SparseMAP(DependencyTree())``:
            then scores and targets are those of the structure, and of the options below
            ``reduction``, ``cost``, ``lengths`` and ``mask`` apply.
        weight: one number per class, shape (C). A target q then counts as ⟨weight, q⟩ times the
            loss against weight · q, made to sum to 1 (what ``F.cross_entropy`` does).
        ignore_index: class index of rows that do not count. If none is left the mean is NaN.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        reduction: ``"mean"`` (over kept rows, by their weights), ``"sum"`` or ``"none"``.
        dim: the class axis; by default 1, or 0 for 1-d scores.
        cost: makes the loss cost-sensitive, by adding to each score what predicting its class would
            cost: a matrix (C, C) with cost[y, j] for class j when y is right; a vector (C) or a
            number for wrong classes, with 0 for the right one. :class:`fenchel.Zero` with
            ``cost=1.0`` is the multi-class hinge loss, :class:`fenchel.Shannon` the softmax-margin
            loss.
        lengths: sizes of the instances, for structures.
        mask: boolean, True where a part may be used, for structures.

    Returns:
        A number, or with ``reduction="none"`` one a row.

    Example:
        >>> scores = torch.tensor([[0.0, 0.5, 2.0], [1.0, 0.0, 0.0]])
        >>> target = torch.tensor([1, 0])
        >>> fenchel_young_loss(scores, target, fy.Norm(2), reduction="none")
        tensor([1.5000, 0.0000])
        >>> fenchel_young_loss(scores, target, "zero", cost=1.0)  # multi-class hinge
        tensor(1.2500)

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """
    if isinstance(omega, StructuredRegularizer):
        refuse_class_options(
            "fenchel_young_loss",
            weight=weight is None,
            ignore_index=ignore_index == -100,
            label_smoothing=label_smoothing == 0.0,
            dim=dim is None,
        )
        return _structured_loss(
            "fenchel_young_loss", omega, scores, target, lengths, mask, cost, reduction
        )
    if lengths is not None or mask is not None:
        raise FenchelError(
            "fenchel_young_loss: `lengths` and `mask` are for structures; with classes, -inf in "
            "`scores` is a mask."
        )
    return rowwise(
        "fenchel_young_loss",
        as_regularizer("fenchel_young_loss", omega),
        scores,
        target,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
        dim=dim,
        cost=cost,
    )


def _structured_loss(
    name: str,
    omega: StructuredRegularizer,
    scores: Any,
    target: Any,
    lengths: Tensor | None,
    mask: Tensor | None,
    cost: float | Tensor | None,
    reduction: str,
) -> Tensor:
    """The Fenchel-Young loss of a batch of structures, reduced over its instances."""
    check_reduction(name, reduction)
    rows = omega.loss(scores, target, lengths=lengths, mask=mask, cost=cost)
    if reduction == "none":
        return rows
    return rows.mean() if reduction == "mean" else rows.sum()
