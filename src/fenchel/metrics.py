"""Metrics for models that give some outcomes probability exactly 0.

Perplexity is infinite as soon as one gold outcome has no mass, and clamping hides how often that
happens. The numbers here stay finite, except where they are told not to, and say it openly.

All take probabilities ``p`` and gold classes ``target``, in any floating dtype, compute in float64
without a graph, and average over the rows that are not ignored (NaN if there are none). On the CPU
values are checked: classes in range, rows of probabilities that sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_ignore_index, check_int, check_number, check_scores
from fenchel._dtypes import widen, widest_dtype
from fenchel._targets import check_indices, check_probabilities, check_target

__all__ = [
    "GoldMetrics",
    "GoldSummary",
    "epsilon_perplexity",
    "jensen_shannon",
    "sparsemax_score",
    "zero_mass_rate",
]

_BLOCK = 2**20  # how many entries are held in float64 at a time
_REMEDY = "apply a map such as fenchel.entmax to scores first"


def epsilon_perplexity(
    p: Tensor, target: Tensor, epsilon: float = 1e-5, *, dim: int = -1, ignore_index: int = -100
) -> Tensor:
    r"""Perplexity after giving every class a little mass.

    .. math:: \exp\left( -\frac{1}{N} \sum_{i=1}^N
        \log \frac{p_i(y_i) + \epsilon}{1 + \epsilon C} \right)

    A gold class without mass counts as :math:`\epsilon / (1 + \epsilon C)`, so a smaller epsilon
    punishes it more: compare models at one epsilon, and see :func:`zero_mass_rate` for how often it
    mattered. The share of the mass that moves is :math:`\epsilon C / (1 + \epsilon C)`: with the
    default, a third for 50,000 classes.

    Args:
        p: probabilities, any shape, floating dtype.
        target: gold classes (int64), the shape of ``p`` without ``dim``.
        epsilon: at least 0. At 0 it is plain perplexity, ``inf`` when a gold class has no mass.
        dim: axis of the classes.
        ignore_index: class of rows that do not count, whatever their ``p``.

    Returns:
        A number of at least 1, float64.

    Example:
        >>> p = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
        >>> fy.metrics.epsilon_perplexity(p, torch.tensor([0, 0]), epsilon=0.01)
        tensor(14.4229, dtype=torch.float64)
        >>> fy.metrics.epsilon_perplexity(p, torch.tensor([0, 0]), epsilon=0)
        tensor(inf, dtype=torch.float64)

    References:
        Martins, Marinho & Martins. Sparse Text Generation. EMNLP 2020.
    """
    name = "epsilon_perplexity"
    epsilon = _check_epsilon(name, epsilon)
    rows = _gold_rows(name, p, target, dim, ignore_index)
    return rows.mean(_surprise(rows, epsilon)).exp()


def sparsemax_score(
    p: Tensor, target: Tensor, *, dim: int = -1, ignore_index: int = -100
) -> Tensor:
    r"""One minus half the squared distance to the gold class: Gini's answer to the likelihood.

    .. math:: \frac{1}{N} \sum_{i=1}^N \left( p_i(y_i) + \tfrac{1}{2} (1 - \|p_i\|^2) \right)
        = 1 - \frac{1}{2N} \sum_{i=1}^N \|e_{y_i} - p_i\|^2

    It is in [0, 1]: 1 when all mass is on the gold class, 0 when all of it is on another one.

    Args:
        p: probabilities, any shape, floating dtype.
        target: gold classes (int64), the shape of ``p`` without ``dim``.
        dim: axis of the classes.
        ignore_index: class of rows that do not count, whatever their ``p``.

    Example:
        >>> p = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
        >>> fy.metrics.sparsemax_score(p, torch.tensor([0, 0]))
        tensor(0.5000, dtype=torch.float64)

    References:
        Martins, Marinho & Martins. Sparse Text Generation. EMNLP 2020.
    """
    rows = _gold_rows("sparsemax_score", p, target, dim, ignore_index)
    return rows.mean(_score(rows))


def jensen_shannon(p: Tensor, target: Tensor, *, dim: int = -1, ignore_index: int = -100) -> Tensor:
    r"""The mean Jensen-Shannon divergence from gold classes, or from distributions, in nats.

    .. math:: \operatorname{JS}(p, q) = \tfrac{1}{2} \operatorname{KL}(p \,\|\, m) + \tfrac{1}{2}
        \operatorname{KL}(q \,\|\, m), \qquad m = \tfrac{1}{2} (p + q)

    It is in [0, log 2]: 0 when p and q agree, log 2 when they share no outcome; with
    :math:`0 \log 0 = 0` it needs no smoothing. A gold class stands for all mass on that class.

    Args:
        p: probabilities, any shape, floating dtype.
        target: gold classes (int64), the shape of ``p`` without ``dim``, or the probabilities q
            (floating, the shape of ``p``).
        dim: axis of the classes.
        ignore_index: class of rows that do not count, whatever their ``p``.

    Example:
        >>> p = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
        >>> fy.metrics.jensen_shannon(p, torch.tensor([0, 0]))  # 0.2158 and log 2
        tensor(0.4545, dtype=torch.float64)
        >>> fy.metrics.jensen_shannon(p, p.flip(0))
        tensor(0.3466, dtype=torch.float64)

    References:
        Martins, Marinho & Martins. Sparse Text Generation. EMNLP 2020.
    """
    name = "jensen_shannon"
    if not isinstance(target, Tensor) or not target.is_floating_point():
        rows = _gold_rows(name, p, target, dim, ignore_index)
        return rows.mean(_divergence_from_gold(rows))
    check_ignore_index(name, ignore_index)
    at = check_scores(name, p, dim, "p")
    if target.shape != p.shape or target.device != p.device:
        raise FenchelError(
            f"{name}: expected a floating `target` (probabilities) of the shape and device of `p`, "
            f"{tuple(p.shape)} on {p.device}, but got {tuple(target.shape)} on {target.device}; "
            "class indices must be int64."
        )
    p, q = _flat_rows(p, at), _flat_rows(target, at)
    check_probabilities(name, p, "p", remedy=_REMEDY)
    check_probabilities(name, q, remedy=_REMEDY)
    pairs = zip(_blocks(p), _blocks(q), strict=True)
    return torch.cat([_divergence(*pair) for pair in pairs]).mean()


def zero_mass_rate(p: Tensor, target: Tensor, *, dim: int = -1, ignore_index: int = -100) -> Tensor:
    """How often the gold class has probability exactly 0, as a share of the rows.

    Args:
        p: probabilities, any shape, floating dtype. One that underflowed is 0 too.
        target: gold classes (int64), the shape of ``p`` without ``dim``.
        dim: axis of the classes.
        ignore_index: class of rows that do not count, whatever their ``p``.

    Example:
        >>> p = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
        >>> fy.metrics.zero_mass_rate(p, torch.tensor([0, 0]))
        tensor(0.5000, dtype=torch.float64)
    """
    rows = _gold_rows("zero_mass_rate", p, target, dim, ignore_index)
    return rows.mean((rows.gold == 0).to(rows.gold.dtype))


@dataclass(frozen=True)
class GoldSummary:
    """What :meth:`GoldMetrics.compute` found.

    Attributes:
        epsilon_perplexity: see :func:`epsilon_perplexity`.
        sparsemax_score: see :func:`sparsemax_score`.
        jensen_shannon: see :func:`jensen_shannon`.
        zero_mass_rate: see :func:`zero_mass_rate`.
        accuracy: how often the gold class is the most likely one (of several, the first).
        support_size: how many classes have mass, on average.
        rows: how many rows counted.
    """

    epsilon_perplexity: float
    sparsemax_score: float
    jensen_shannon: float
    zero_mass_rate: float
    accuracy: float
    support_size: float
    rows: int


class GoldMetrics:
    """All metrics of a data set that comes in batches.

    Sums are kept, not means: every row counts the same, however the rows are cut into batches.

    Args:
        epsilon: that of :func:`epsilon_perplexity`.
        dim: axis of the classes.
        ignore_index: class of rows that do not count, whatever their ``p``.

    Example:
        >>> metrics = fy.metrics.GoldMetrics()
        >>> for scores, target in [([2.0, 0.0], 0), ([0.0, 2.0], 0), ([0.0, 0.0], 1)]:
        ...     metrics.update(fy.sparsemax(torch.tensor([scores])), torch.tensor([target]))
        >>> summary = metrics.compute()
        >>> summary.rows, summary.support_size, round(summary.zero_mass_rate, 4)
        (3, 1.3333333333333333, 0.3333)
    """

    _sums: Tensor  # of the six metrics, in the order of a summary
    _rows: Tensor

    def __init__(self, epsilon: float = 1e-5, *, dim: int = -1, ignore_index: int = -100) -> None:
        self.epsilon = _check_epsilon("GoldMetrics", epsilon)
        self.dim = check_int("GoldMetrics", "dim", dim)
        self.ignore_index = int(check_ignore_index("GoldMetrics", ignore_index))
        self.reset()

    def update(self, p: Tensor, target: Tensor) -> None:
        """Add a batch.

        Args:
            p: probabilities, any shape, floating dtype.
            target: gold classes (int64), the shape of ``p`` without ``dim``.
        """
        rows = _gold_rows("GoldMetrics.update", p, target, self.dim, self.ignore_index)
        values = (
            _surprise(rows, self.epsilon),
            _score(rows),
            _divergence_from_gold(rows),
            rows.gold == 0,
            rows.p.argmax(-1) == rows.target,
            (rows.p > 0).sum(-1),
        )
        sums = torch.stack([rows.sum(value.to(rows.gold.dtype)) for value in values])
        self._sums = sums + self._sums.to(sums)
        self._rows = rows.kept.sum() + self._rows.to(sums.device)

    def compute(self) -> GoldSummary:
        """The means over all rows so far; NaN if there are none."""
        surprise, score, divergence, zeros, hits, sizes = (self._sums / self._rows).cpu()
        return GoldSummary(
            epsilon_perplexity=float(surprise.exp()),
            sparsemax_score=float(score),
            jensen_shannon=float(divergence),
            zero_mass_rate=float(zeros),
            accuracy=float(hits),
            support_size=float(sizes),
            rows=int(self._rows),
        )

    def reset(self) -> None:
        """Forget all batches."""
        self._sums = torch.zeros(6, dtype=torch.float64)
        self._rows = torch.tensor(0)

    def __repr__(self) -> str:
        return (
            f"GoldMetrics(epsilon={self.epsilon:g}, dim={self.dim}, "
            f"ignore_index={self.ignore_index})"
        )


def _surprise(rows: _GoldRows, epsilon: float) -> Tensor:
    return math.log1p(epsilon * rows.p.shape[-1]) - (rows.gold + epsilon).log()


def _score(rows: _GoldRows) -> Tensor:
    return rows.gold + (1 - torch.cat([x.square().sum(-1) for x in _blocks(rows.p)])) / 2


def _divergence_from_gold(rows: _GoldRows) -> Tensor:
    """Jensen-Shannon's from all mass on the gold class; elsewhere each p counts log 2 times p."""
    p = rows.gold
    r = (1 - p) / (1 + p)  # 2 / (1 + p) is 1 + r, and 2p / (1 + p) is 1 - r
    return ((1 - p) * math.log(2) + torch.special.xlog1py(p, -r) + r.log1p()) / 2


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon's, as a sum of terms (p + q) g(r) / 4 that are not negative."""
    total = p + q
    r = (p - q) / torch.where(total == 0, 1.0, total)
    far = torch.special.xlog1py(1 + r, r) + torch.special.xlog1py(1 - r, -r)
    near = torch.where(r.abs() < 0.5, r, 0.0)  # where the two logarithms cancel
    near = 2 * near * near.atanh() + (-near * near).log1p()
    return (total * torch.where(r.abs() < 0.5, near, far)).sum(-1) / 4


def _check_epsilon(name: str, epsilon: Any) -> float:
    number = check_number(name, "epsilon", epsilon, 0.0, "(0 is plain perplexity)")
    if number == math.inf:
        raise FenchelError(f"{name}: `epsilon` must be finite; got {epsilon!r}.")
    return number


@dataclass(frozen=True)
class _GoldRows:
    """N rows over C classes, some of which do not count."""

    p: Tensor  # (N, C), in the caller's dtype
    target: Tensor  # (N), 0 where it is ignored
    kept: Tensor  # (N), boolean
    gold: Tensor  # (N), p at target, float64

    def sum(self, values: Tensor) -> Tensor:
        """Over the rows that count."""
        return torch.where(self.kept, values, 0.0).sum()

    def mean(self, values: Tensor) -> Tensor:
        """Over the rows that count; NaN if there are none."""
        return self.sum(values) / self.kept.sum()


def _gold_rows(name: str, p: Any, target: Any, dim: Any, ignore_index: Any) -> _GoldRows:
    """The rows of ``p`` along ``dim``, after all checks."""
    at = check_scores(name, p, dim, "p")
    target = check_target(name, target, p, at, label="p", index=True)
    rows, classes = _flat_rows(p, at), target.reshape(-1)
    kept = classes != check_ignore_index(name, ignore_index)
    classes = torch.where(kept, classes, 0)
    check_indices(name, classes, rows.shape[-1])
    check_probabilities(name, rows, "p", kept, _REMEDY)
    gold = rows.gather(-1, classes.unsqueeze(-1)).squeeze(-1)
    return _GoldRows(rows, classes, kept, gold.to(widest_dtype(p.device)))


def _flat_rows(p: Tensor, dim: int) -> Tensor:
    """``p`` without a graph, as (N, C)."""
    return p.detach().movedim(dim, -1).reshape(-1, p.shape[dim])


def _blocks(p: Tensor) -> Iterator[Tensor]:
    """Rows (N, C) in float64, a few at a time: all of them may not fit."""
    for block in p.split(max(1, _BLOCK // p.shape[-1])):
        yield widen(block)
