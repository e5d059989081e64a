from __future__ import annotations

from torch import Tensor

from fenchel.losses._cross_entropy_shape import rowwise
from fenchel.regularizers import Gini


def sparsemax_loss(
    scores: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    dim: int | None = None,
    cost: float | Tensor | None = None,
) -> Tensor:
    r"""The loss of :func:`fenchel.sparsemax`: :func:`entmax_loss` at :math:`\alpha = 2`.

    .. math:: L(\theta; y) = \tfrac{1}{2} \|y - \theta\|^2 - \tfrac{1}{2} \|p - \theta\|^2,
        \qquad p = \operatorname{sparsemax}(\theta)

    It is 0 exactly when the right score leads by 1 or more; with two classes it is the modified
    Huber loss.

    Args:
        scores: shape (C), (N, C) or (N, C, d₁, …), or any with ``dim``.
        target: class indices (int64) or probabilities (floating).
        weight: one number a class, shape (C).
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        dim: the class axis; by default 1, or 0 for 1-d scores.
        cost: number, vector (C) or matrix (C, C) of what a wrong class costs.

    See :func:`fenchel.fenchel_young_loss` for what each argument does in full.

    Example:
        >>> scores = torch.tensor([[1.5, 0.0, 0.5], [0.0, 0.5, 0.0]])
        >>> fy.sparsemax_loss(scores, torch.tensor([0, 2]), reduction="none")
        tensor([0.0000, 0.5833])

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016.
    """
    return rowwise(
        "sparsemax_loss",
        Gini(),
        scores,
        target,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
        dim=dim,
        cost=cost,
    )
