"""The losses of the entmax family: cross-entropy's arguments, gradients that are p - y."""

from __future__ import annotations

from torch import Tensor

from fenchel._checks import check_alpha
from fenchel.losses._cross_entropy_shape import rowwise
from fenchel.regularizers import Gini, Tsallis


def entmax_loss(
    scores: Tensor,
    target: Tensor,
    alpha: float | Tensor = 1.5,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    dim: int | None = None,
    cost: float | Tensor | None = None,
) -> Tensor:
    r"""The loss of :func:`fenchel.entmax`, instead of ``F.cross_entropy``.

    .. math:: L_\alpha(\theta; y) = \langle p - y, \theta \rangle + \Omega_\alpha(y) -
        \Omega_\alpha(p), \qquad p = \operatorname{entmax}_\alpha(\theta), \qquad
        \nabla_\theta L_\alpha = p - y

    :math:`\alpha = 1` is cross-entropy, 2 the sparsemax loss, ∞ the perceptron loss. Against
    probabilities q (and with label smoothing) the loss at :math:`\alpha = 1` is cross-entropy
    minus the entropy of q, so that its minimum is 0; the gradients are the same. For
    :math:`\alpha > 1` a row whose right score leads by :math:`1/(\alpha - 1)` has a loss and a
    gradient of exactly 0, and the gradient of any other row is 0 wherever :math:`p` and :math:`y`
    are; for :math:`\alpha < 1`, as for 1, no loss is ever exactly 0.

    Args:
        scores: shape (C), (N, C) or (N, C, d₁, …), or any with ``dim``.
        target: class indices (int64) or probabilities (floating).
        alpha: a number in (0, ∞], or a tensor that broadcasts against ``scores`` with size 1 along
            the class axis: per row, learnable, with gradient.
        weight: one number per class, shape (C).
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        dim: the class axis; by default 1, or 0 for 1-d scores.
        cost: number, vector (C) or matrix (C, C) of what a wrong class costs.

    See :func:`fenchel.fenchel_young_loss` for what each argument does in full.

    Example:
        >>> scores = torch.tensor([[3.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> fy.entmax_loss(scores, torch.tensor([0, 2]), alpha=1.5, reduction="none")
        tensor([0.0000, 1.0996])

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """
    if not isinstance(alpha, Tensor):
        check_alpha("entmax_loss", alpha, _MEANING, "a number or a torch.Tensor")
    return rowwise(
        "entmax_loss",
        Tsallis(alpha),
        scores,
        target,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
        dim=dim,
        cost=cost,
    )


_MEANING = "(1 is cross-entropy, 2 is the sparsemax loss)"


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
        weight: one number per class, shape (C).
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
        weight: one number per class, shape (C).
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
