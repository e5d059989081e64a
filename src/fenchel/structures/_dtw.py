from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_positive, check_scores
from fenchel._graphs import outside_graphs
from fenchel.structures._alignment import Alignment
from fenchel.structures._sizes import check_sizes
from fenchel.structures.matrix import all_finite, inside_cells
from fenchel.structures.problem import Problem, refuse_unreadable


@outside_graphs
def dtw(cost: Tensor, *, lengths: Tensor | None = None, band: float | None = None) -> Tensor:
    r"""Dynamic time warping: the cost of the cheapest monotonic alignment.

    .. math:: \operatorname{DTW}(C) = \min_{Y \in \mathcal A_{m,n}} \langle C, Y \rangle

    over the paths of :class:`Alignment`. The gradient is the cheapest path itself, 0s and 1s (one
    of them on ties).

    Args:
        cost: (*batch, m, n), floating; ``+inf`` is a cell that no path may use.
        lengths: (*batch, 2), rows and columns of each instance, if they differ.
        band: see :class:`Alignment`; on rectangles it is not tslearn's ``sakoe_chiba_radius``.

    Returns:
        (*batch).

    Example:
        >>> x, y = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 2.0])
        >>> dtw((x[:, None] - y).square())
        tensor(1.)
    """
    structure, problem = _problem("dtw", cost, lengths, band)
    return problem.values(-problem.score(structure.best_parts(problem, problem.scores)))


@outside_graphs
def soft_dtw(
    cost: Tensor,
    gamma: float = 1.0,
    *,
    lengths: Tensor | None = None,
    band: float | None = None,
) -> Tensor:
    r"""Soft-DTW: dynamic time warping with a smoothed minimum.

    .. math:: \operatorname{SoftDTW}_\gamma(C) =
        -\gamma \log \sum_{Y \in \mathcal A_{m,n}} e^{-\langle C, Y \rangle / \gamma}

    It is below :func:`dtw` by at most :math:`\gamma \log` of the number of paths, and therefore can
    be negative: for zero costs it is :math:`-\gamma \log \text{Delannoy}(m-1, n-1)`.
    :func:`soft_dtw_divergence` is 0 there. The gradient is the expected alignment, with 1 at both
    corners; it is differentiable again.

    Args:
        cost: (*batch, m, n), floating; ``+inf`` is a cell that no path may use.
        gamma: smoothing, above 0; towards 0 it is DTW.
        lengths: (*batch, 2), rows and columns of each instance, if they differ.
        band: see :class:`Alignment`.

    Returns:
        (*batch).

    Example:
        >>> soft_dtw(torch.zeros(3, 3))
        tensor(-2.5649)

    References:
        Cuturi & Blondel. Soft-DTW: a Differentiable Loss Function for Time-Series. ICML 2017.
    """
    gamma = check_positive("soft_dtw", "gamma", gamma, 1e300, "a number above 0 (0 is `dtw`)")
    structure, problem = _problem("soft_dtw", cost, lengths, band)
    return problem.values(-structure.smoothed_max(problem, "entropy", gamma))


@outside_graphs
def soft_dtw_divergence(
    cost_xy: Tensor,
    cost_xx: Tensor,
    cost_yy: Tensor,
    gamma: float = 1.0,
    *,
    lengths: Tensor | None = None,
    band: float | None = None,
) -> Tensor:
    r"""The divergence of soft-DTW, which is 0 between a sequence and itself.

    .. math:: D_\gamma(x, y) = \operatorname{SoftDTW}_\gamma(C_{xy})
        - \tfrac12 \operatorname{SoftDTW}_\gamma(C_{xx})
        - \tfrac12 \operatorname{SoftDTW}_\gamma(C_{yy})

    Soft-DTW counts all paths, not only the cheapest, so that it is negative between a sequence and
    itself, and its minimum over y is not at y = x. Taking off what both sequences have with
    themselves repairs that: the divergence is 0 at y = x and, for costs such as the squared
    Euclidean distance plus a suitable logarithm, nonnegative (in practice also without it).

    Args:
        cost_xy: (*batch, m, n), costs between the elements of x and of y.
        cost_xx: (*batch, m, m).
        cost_yy: (*batch, n, n).
        gamma: smoothing, above 0.
        lengths: (*batch, 2), the lengths of x and y of each instance, if they differ.
        band: see :class:`Alignment`.

    Returns:
        (*batch).

    Example:
        >>> x, y = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 2.0])
        >>> cost = lambda a, b: (a[:, None] - b).square()
        >>> soft_dtw_divergence(cost(x, y), cost(x, x), cost(y, y))
        tensor(0.7359)
        >>> soft_dtw_divergence(cost(x, x), cost(x, x), cost(x, x))
        tensor(0.)

    References:
        Blondel, Mensch & Vert. Differentiable Divergences Between Time Series. AISTATS 2021.
    """
    name = "soft_dtw_divergence"
    gamma = check_positive(name, "gamma", gamma, 1e300, "a number above 0")
    for cost in (cost_xy, cost_xx, cost_yy):
        check_scores(name, cost, -1, "cost")
    if cost_xy.dim() >= 2:
        *batch, m, n = cost_xy.shape
        for label, cost, size in (("cost_xx", cost_xx, m), ("cost_yy", cost_yy, n)):
            if tuple(cost.shape) != (*batch, size, size):
                raise FenchelError(
                    f"{name}: expected `{label}` of shape {(*batch, size, size)} for `cost_xy` of "
                    f"shape {tuple(cost_xy.shape)}, but got {tuple(cost.shape)}."
                )
    between = soft_dtw(cost_xy, gamma, lengths=lengths, band=band)
    own: list[Tensor | None] = [None, None]
    if lengths is not None:
        own = [torch.stack([one, one], -1) for one in lengths.unbind(-1)]
    within_x = soft_dtw(cost_xx, gamma, lengths=own[0], band=band)
    within_y = soft_dtw(cost_yy, gamma, lengths=own[1], band=band)
    return between - 0.5 * (within_x + within_y)


def _problem(name: str, cost: Any, lengths: Any, band: Any) -> tuple[Alignment, Problem]:
    check_scores(name, cost, -1, "cost")
    refuse_unreadable(cost)
    if cost.dim() >= 2 and not all_finite(cost):
        wrong = (cost.detach().isnan() | (cost.detach() == -torch.inf)).cpu()
        if bool(wrong.any()):
            m, n = cost.shape[-2:]
            sizes = check_sizes(name, lengths, cost.shape[:-2], (m, n))
            rows = (wrong.reshape(-1, m, n) & inside_cells(sizes, m, n)).flatten(1).any(1)
            if bool(rows.any()):
                raise FenchelError(
                    f"{name}: expected finite costs (or +inf, a mask), but instance "
                    f"{int(rows.long().argmax())} of the batch has NaN or -inf."
                )
    structure = Alignment(band)
    return structure, structure.problem(name, -cost, lengths, None)
