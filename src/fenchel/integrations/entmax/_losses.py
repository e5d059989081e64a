from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from fenchel._checks import (
    FenchelError,
    check_alphas,
    check_choice,
    check_ignore_index,
    check_parameter,
    check_scores,
)
from fenchel._dtypes import full_dtype
from fenchel._targets import check_indices, check_target
from fenchel.integrations.entmax._maps import check_count, floating
from fenchel.kernels import IGNORED
from fenchel.regularizers import Gini, Norm, Regularizer, Tsallis

_REDUCTIONS = ("elementwise_mean", "sum", "none")


def sparsemax_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """``entmax.sparsemax_loss`` by way of :class:`fenchel.Gini`.

    Args:
        X: scores of shape (n, C), floating dtype; more or fewer leading dimensions will do.
        target: classes of shape (n), int64.
        k: no effect, see :mod:`fenchel.integrations.entmax`.

    Returns:
        One loss per row, in the dtype of ``X``.

    Example:
        >>> from fenchel.integrations.entmax import sparsemax_loss
        >>> X = torch.tensor([[1.5, 0.0, 0.5], [0.0, 0.5, 0.0]])
        >>> sparsemax_loss(X, torch.tensor([0, 2]))
        tensor([0.0000, 0.5833])
    """
    check_count("sparsemax_loss", "k", k)
    return _loss_of_rows("sparsemax_loss", Gini(), X, target)


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int | None = 50) -> Tensor:
    """``entmax.sparsemax_bisect_loss`` by way of :class:`fenchel.Gini`.

    Args:
        X: scores of shape (n, C), floating dtype; more or fewer leading dimensions will do.
        target: classes of shape (n), int64.
        n_iter: no effect, see :mod:`fenchel.integrations.entmax`.

    Returns:
        One loss per row, in the dtype of ``X``.

    Example:
        >>> from fenchel.integrations.entmax import sparsemax_bisect_loss
        >>> X = torch.tensor([[1.5, 0.0, 0.5], [0.0, 0.5, 0.0]])
        >>> sparsemax_bisect_loss(X, torch.tensor([0, 2]))
        tensor([0.0000, 0.5833])
    """
    check_count("sparsemax_bisect_loss", "n_iter", n_iter)
    return _loss_of_rows("sparsemax_bisect_loss", Gini(), X, target)


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """``entmax.entmax15_loss`` by way of :class:`fenchel.Tsallis`.

    Args:
        X: scores of shape (n, C), floating dtype; more or fewer leading dimensions will do.
        target: classes of shape (n), int64.
        k: no effect, see :mod:`fenchel.integrations.entmax`.

    Returns:
        One loss per row, in the dtype of ``X``.

    Example:
        >>> from fenchel.integrations.entmax import entmax15_loss
        >>> X = torch.tensor([[3.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> entmax15_loss(X, torch.tensor([0, 2]))
        tensor([0.0000, 1.0996])
    """
    check_count("entmax15_loss", "k", k)
    return _loss_of_rows("entmax15_loss", Tsallis(1.5), X, target)


def entmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 1.5, n_iter: int | None = 50
) -> Tensor:
    """``entmax.entmax_bisect_loss`` by way of :class:`fenchel.Tsallis`.

    Args:
        X: scores of shape (n, C), floating dtype; more or fewer leading dimensions will do.
        target: classes of shape (n), int64.
        alpha: a number in (0, ∞], or a tensor that broadcasts to (n, 1), with gradient.
        n_iter: no effect, see :mod:`fenchel.integrations.entmax`.

    Returns:
        One loss per row, in the dtype of ``X``.

    Example:
        >>> from fenchel.integrations.entmax import entmax_bisect_loss
        >>> X = torch.tensor([[3.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> entmax_bisect_loss(X, torch.tensor([0, 2]), alpha=1.25)
        tensor([0.0238, 1.2580])
    """
    name = "entmax_bisect_loss"
    check_count(name, "n_iter", n_iter)
    return _loss_of_rows(name, _tsallis(name, alpha, X), X, target)


def normmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 2, n_iter: int | None = 50
) -> Tensor:
    """``entmax.normmax_bisect_loss`` by way of :class:`fenchel.Norm`.

    Args:
        X: scores of shape (n, C), floating dtype; more or fewer leading dimensions will do.
        target: classes of shape (n), int64.
        alpha: a number in [1, ∞], or a tensor that broadcasts to (n, 1), with gradient.
        n_iter: no effect, see :mod:`fenchel.integrations.entmax`.

    Returns:
        One loss per row, in the dtype of ``X``.

    Example:
        >>> from fenchel.integrations.entmax import normmax_bisect_loss
        >>> X = torch.tensor([[1.5, 0.0, 0.5], [0.0, 0.5, 0.0]])
        >>> normmax_bisect_loss(X, torch.tensor([0, 2]))
        tensor([0.0000, 0.6396])
    """
    name = "normmax_bisect_loss"
    check_count(name, "n_iter", n_iter)
    return _loss_of_rows(name, _norm(name, alpha, X), X, target)


class _Loss(Module):
    """What the package does around a loss: rows of one class are ignored, the others reduced."""

    def __init__(self, ignore_index: int, reduction: str) -> None:
        super().__init__()
        check_choice(type(self).__name__, "reduction", reduction, _REDUCTIONS)
        self.ignore_index = int(check_ignore_index(type(self).__name__, ignore_index))
        self.reduction = reduction

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        """One loss per row; no class is ignored."""
        raise NotImplementedError

    def forward(self, X: Tensor, target: Tensor) -> Tensor:
        kept = None
        if isinstance(target, Tensor) and not target.dtype.is_floating_point:
            kept = target != self.ignore_index
            target = torch.where(kept, target.long(), IGNORED)
        losses = self.loss(X, target)
        if self.reduction == "none" or kept is None:
            return losses
        if self.reduction == "sum":
            return losses.sum()
        # In float16 a sum may be infinite when the mean is not.
        return (losses.sum(dtype=full_dtype(losses.dtype)) / kept.sum()).to(losses.dtype)


class SparsemaxLoss(_Loss):
    """:func:`sparsemax_loss` as a module, with rows to ignore and a reduction.

    Args:
        k: no effect, see :mod:`fenchel.integrations.entmax`.
        ignore_index: class of rows whose loss and gradient are 0.
        reduction: ``"elementwise_mean"`` (over the rows that are kept), ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        k: int | None = None,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.k = k

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        return sparsemax_loss(X, target, self.k)


class SparsemaxBisectLoss(_Loss):
    """:func:`sparsemax_bisect_loss` as a module, otherwise as :class:`SparsemaxLoss`."""

    def __init__(
        self,
        n_iter: int | None = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.n_iter = n_iter

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        return sparsemax_bisect_loss(X, target, self.n_iter)


class Entmax15Loss(_Loss):
    """:func:`entmax15_loss` as a module, otherwise as :class:`SparsemaxLoss`."""

    def __init__(
        self,
        k: int | None = 100,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.k = k

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        return entmax15_loss(X, target, self.k)


class EntmaxBisectLoss(_Loss):
    """:func:`entmax_bisect_loss` as a module, otherwise as :class:`SparsemaxLoss`."""

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        n_iter: int | None = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.alpha, self.n_iter = alpha, n_iter

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        return entmax_bisect_loss(X, target, self.alpha, self.n_iter)


class NormmaxBisectLoss(_Loss):
    """:func:`normmax_bisect_loss` as a module, otherwise as :class:`SparsemaxLoss`."""

    def __init__(
        self,
        alpha: float | Tensor = 2,
        n_iter: int | None = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.alpha, self.n_iter = alpha, n_iter

    def loss(self, X: Tensor, target: Tensor) -> Tensor:
        return normmax_bisect_loss(X, target, self.alpha, self.n_iter)


def _loss_of_rows(name: str, omega: Regularizer, X: Any, target: Any) -> Tensor:
    """The losses of omega, after checks that speak of the function that was called."""
    at = check_scores(name, X, -1)
    if isinstance(target, Tensor) and target.is_floating_point():
        raise FenchelError(
            f"{name}: expected `target` of class indices (int64), but got {target.dtype}; for "
            "probabilities use fenchel.fenchel_young_loss."
        )
    target = check_target(name, target, X, at)
    target = check_indices(name, target, X.shape[-1])
    return omega.loss(X, target)


def _tsallis(name: str, alpha: Any, X: Any) -> Tsallis:
    at = check_scores(name, X, -1)
    meaning = "(1 is cross-entropy, 2 is the sparsemax loss)"
    return Tsallis(check_alphas(name, floating(alpha, X), X, at, meaning))


def _norm(name: str, alpha: Any, X: Any) -> Norm:
    at = check_scores(name, X, -1)
    meaning = "(1 is the perceptron loss)"
    return Norm(check_parameter(name, "alpha", floating(alpha, X), X, at, 1.0, meaning))
