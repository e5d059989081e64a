from __future__ import annotations

from torch import Tensor

from fenchel.losses._cross_entropy_shape import rowwise
from fenchel.regularizers import Tsallis


def entmax15_loss(
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
    r"""The loss of :func:`fenchel.entmax15`: :func:`entmax_loss` at :math:`\alpha = 1.5`.

    .. math:: L(\theta; e_k) = \sum_i p_i (\theta_i - \theta_k) + \tfrac{4}{3}
        \left( 1 - \textstyle\sum_i p_i^{3/2} \right), \qquad
        p = \operatorname{entmax}_{1.5}(\theta)

    It is 0 exactly when the right score leads by 2 or more.

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
        >>> scores = torch.tensor([[3.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> fy.entmax15_loss(scores, torch.tensor([0, 2]), reduction="none")
        tensor([0.0000, 1.0996])

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """
    return rowwise(
        "entmax15_loss",
        Tsallis(1.5),
        scores,
        target,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
        dim=dim,
        cost=cost,
    )
