"""The maps of the package, and the arguments that it takes and the functions here do not need."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor
from torch.nn import Module

from fenchel import maps
from fenchel._checks import FenchelError, check_scores


def floating(value: Any, like: Tensor) -> Any:
    """The package takes an integer tensor for a parameter; the maps want a floating one."""
    if isinstance(value, Tensor) and not value.is_floating_point():
        return value.to(like.dtype)
    return value


def check_count(name: str, label: str, value: Any) -> None:
    if value is None:
        return
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if isinstance(value, bool) or count < 1:
        raise FenchelError(
            f"{name}: expected `{label}` to be a positive int or None, but got {value!r}."
        )


def check_flag(name: str, value: Any) -> None:
    if value not in (True, False):
        raise FenchelError(
            f"{name}: expected `ensure_sum_one` to be True or False, but got {value!r}."
        )


def sparsemax(
    X: Tensor, dim: int = -1, k: int | None = None, return_support_size: bool = False
) -> Any:
    """``entmax.sparsemax`` by way of :func:`fenchel.sparsemax`.

    Args:
        X: any shape, floating dtype.
        dim: axis to normalise.
        k: no effect, see :mod:`fenchel.integrations.entmax`.
        return_support_size: whether to return the number of nonzeros too.

    Returns:
        Probabilities of the shape of ``X``; with ``return_support_size`` also an int64 tensor of
        that shape with size 1 along ``dim``.

    Example:
        >>> from fenchel.integrations.entmax import sparsemax
        >>> sparsemax(torch.tensor([-2.0, 0.0, 0.5]), return_support_size=True)
        (tensor([0.0000, 0.2500, 0.7500]), tensor([2]))
    """
    check_count("sparsemax", "k", k)
    return _with_size(maps.sparsemax(X, dim), dim, return_support_size)


def entmax15(
    X: Tensor, dim: int = -1, k: int | None = None, return_support_size: bool = False
) -> Any:
    """``entmax.entmax15`` by way of :func:`fenchel.entmax15`.

    Args:
        X: any shape, floating dtype.
        dim: axis to normalise.
        k: no effect, see :mod:`fenchel.integrations.entmax`.
        return_support_size: whether to return the number of nonzeros too.

    Returns:
        Probabilities of the shape of ``X``; with ``return_support_size`` also an int64 tensor of
        that shape with size 1 along ``dim``.

    Example:
        >>> from fenchel.integrations.entmax import entmax15
        >>> entmax15(torch.tensor([2.0, 0.0, 0.0]), return_support_size=True)
        (tensor([1., 0., 0.]), tensor([1]))
    """
    check_count("entmax15", "k", k)
    return _with_size(maps.entmax15(X, dim), dim, return_support_size)


def sparsemax_bisect(
    X: Tensor, dim: int = -1, n_iter: int | None = 50, ensure_sum_one: bool = True
) -> Tensor:
    """``entmax.sparsemax_bisect`` by way of :func:`fenchel.sparsemax`.

    Args:
        X: any shape, floating dtype.
        dim: axis to normalise.
        n_iter: no effect, see :mod:`fenchel.integrations.entmax`.
        ensure_sum_one: no effect.

    Example:
        >>> from fenchel.integrations.entmax import sparsemax_bisect
        >>> sparsemax_bisect(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.2500, 0.7500])
    """
    check_count("sparsemax_bisect", "n_iter", n_iter)
    check_flag("sparsemax_bisect", ensure_sum_one)
    return maps.sparsemax(X, dim)


def entmax_bisect(
    X: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    n_iter: int | None = 50,
    ensure_sum_one: bool = True,
) -> Tensor:
    """``entmax.entmax_bisect`` by way of :func:`fenchel.entmax`.

    Args:
        X: any shape, floating dtype.
        alpha: a number in (0, ∞], or a tensor that expands to the shape of ``X`` with size 1
            along ``dim``, with gradient.
        dim: axis to normalise.
        n_iter: no effect, see :mod:`fenchel.integrations.entmax`.
        ensure_sum_one: no effect.

    Example:
        >>> from fenchel.integrations.entmax import entmax_bisect
        >>> entmax_bisect(torch.tensor([-1.0, 0.0, 0.5]), alpha=1.33)
        tensor([0.0460, 0.3276, 0.6264])
    """
    check_count("entmax_bisect", "n_iter", n_iter)
    check_flag("entmax_bisect", ensure_sum_one)
    return maps.entmax(X, alpha=floating(alpha, X), dim=dim)


def normmax_bisect(
    X: Tensor, alpha: float | Tensor = 2, dim: int = -1, n_iter: int | None = 50
) -> Tensor:
    """``entmax.normmax_bisect`` by way of :func:`fenchel.normmax`.

    Args:
        X: any shape, floating dtype.
        alpha: a number in [1, ∞], or a tensor that expands to the shape of ``X`` with size 1
            along ``dim``, with gradient.
        dim: axis to normalise.
        n_iter: no effect, see :mod:`fenchel.integrations.entmax`.

    Example:
        >>> from fenchel.integrations.entmax import normmax_bisect
        >>> normmax_bisect(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3110, 0.6890])
    """
    check_count("normmax_bisect", "n_iter", n_iter)
    return maps.normmax(X, q=floating(alpha, X), dim=dim)


def budget_bisect(
    X: Tensor, budget: float | Tensor = 2, dim: int = -1, n_iter: int | None = 50
) -> Tensor:
    """``entmax.budget_bisect`` by way of :func:`fenchel.budget`.

    Args:
        X: any shape, floating dtype.
        budget: what the answer sums to, a number of at least 0, or a tensor that expands to the
            shape of ``X`` with size 1 along ``dim``, with gradient. A budget above the number of
            entries gives each of them 1.
        dim: axis to normalise.
        n_iter: no effect, see :mod:`fenchel.integrations.entmax`.

    Example:
        >>> from fenchel.integrations.entmax import budget_bisect
        >>> budget_bisect(torch.tensor([1.0, 0.2, -0.1, -3.0]), budget=2)
        tensor([1.0000, 0.6500, 0.3500, 0.0000])
    """
    check_count("budget_bisect", "n_iter", n_iter)
    check_scores("budget_bisect", X, dim)
    k = floating(budget, X)
    if isinstance(k, int | float):
        k = min(k, X.shape[dim])
    return maps.budget(X, k, dim)


class Sparsemax(Module):
    """:func:`sparsemax` as a module, with its arguments."""

    def __init__(
        self, dim: int = -1, k: int | None = None, return_support_size: bool = False
    ) -> None:
        super().__init__()
        self.dim, self.k, self.return_support_size = dim, k, return_support_size

    def forward(self, X: Tensor) -> Any:
        return sparsemax(X, self.dim, self.k, self.return_support_size)


class Entmax15(Module):
    """:func:`entmax15` as a module, with its arguments."""

    def __init__(
        self, dim: int = -1, k: int | None = None, return_support_size: bool = False
    ) -> None:
        super().__init__()
        self.dim, self.k, self.return_support_size = dim, k, return_support_size

    def forward(self, X: Tensor) -> Any:
        return entmax15(X, self.dim, self.k, self.return_support_size)


class SparsemaxBisect(Module):
    """:func:`sparsemax_bisect` as a module, with its arguments."""

    def __init__(self, dim: int = -1, n_iter: int | None = None) -> None:
        super().__init__()
        self.dim, self.n_iter = dim, n_iter

    def forward(self, X: Tensor) -> Tensor:
        return sparsemax_bisect(X, self.dim, self.n_iter)


class EntmaxBisect(Module):
    """:func:`entmax_bisect` as a module, with its arguments."""

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int | None = 50) -> None:
        super().__init__()
        self.alpha, self.dim, self.n_iter = alpha, dim, n_iter

    def forward(self, X: Tensor) -> Tensor:
        return entmax_bisect(X, self.alpha, self.dim, self.n_iter)


class NormmaxBisect(Module):
    """:func:`normmax_bisect` as a module, with its arguments."""

    def __init__(self, alpha: float | Tensor = 2, dim: int = -1, n_iter: int | None = 50) -> None:
        super().__init__()
        self.alpha, self.dim, self.n_iter = alpha, dim, n_iter

    def forward(self, X: Tensor) -> Tensor:
        return normmax_bisect(X, self.alpha, self.dim, self.n_iter)


class BudgetBisect(Module):
    """:func:`budget_bisect` as a module, with its arguments."""

    def __init__(self, budget: float | Tensor = 2, dim: int = -1, n_iter: int | None = 50) -> None:
        super().__init__()
        self.budget, self.dim, self.n_iter = budget, dim, n_iter

    def forward(self, X: Tensor) -> Tensor:
        return budget_bisect(X, self.budget, self.dim, self.n_iter)


def _with_size(p: Tensor, dim: int, wanted: bool) -> Tensor | tuple[Tensor, Tensor]:
    return (p, (p > 0).sum(dim, keepdim=True)) if wanted else p
