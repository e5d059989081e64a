from __future__ import annotations

import torch
from torch import Tensor

from fenchel._dtypes import Parameter
from fenchel.maps._family import Family
from fenchel.maps.declaration import Argument, declare


def budget(
    scores: Tensor,
    k: float | Tensor = 2.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    r"""Sparse choice of ``k`` out of ``n``: projection onto the capped simplex.

    .. math::
        \operatorname{budget}_k(\theta) = \arg\min_{p} \|p - \theta\|_2^2
        \quad \text{s.t.} \quad 0 \le p_i \le 1,\; \sum_i p_i = k,
        \qquad p_i = \operatorname{clip}(\theta_i - \tau, 0, 1)

    Entries are inclusion probabilities that sum to ``k``, many of them exactly 0 or exactly 1. A
    row with fewer than ``k`` unmasked entries gives each of them 1. ``-inf`` is a mask; a fully
    masked row is all zeros; a row with NaN or ``+inf`` is all NaN. ``k = 1`` is sparsemax.

    Args:
        scores: any shape, floating dtype.
        k: how much to distribute, a number in [0, n] (it need not be whole), or a tensor that
            broadcasts against ``scores`` with size 1 along ``dim``, with gradient. A tensor's
            values are not checked; a negative one (or NaN) makes its rows NaN, and one above n
            gives every unmasked entry 1 (a number above n is refused).
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: a temperature, f(scores / gamma): a finite number above 0, or a tensor with one per
            row, with gradient.

    Returns:
        Inclusion probabilities of the shape and dtype of ``scores``.

    Example:
        >>> budget(torch.tensor([1.0, 0.2, -0.1, -3.0]), k=2)
        tensor([1.0000, 0.6500, 0.3500, 0.0000])

    References:
        Martins & Kreutzer. Learning What's Easy: Fully Differentiable Neural Easy-First Taggers.
        EMNLP 2017 (constrained sparsemax).
    """
    return BUDGET.run(scores, k, dim, mask, gamma)


# Derivatives of budget from its output.
#
# Only active entries, :math:`0 < p_i < 1`, move. With their indicator :math:`s` the Jacobian is
# :math:`\operatorname{diag}(s) - s s^\top / \sum_i s_i`, and a change of ``k`` is shared equally
# between them. Without an active entry both are 0.


def _jacobian_product(p: Tensor, parameter: Parameter, vector: Tensor, dim: int) -> Tensor:
    active = _active(p)
    vector = torch.where(active == 0, 0.0, vector)
    total = active.sum(dim, keepdim=True)
    mean = (active * vector).sum(dim, keepdim=True) / torch.where(total == 0, 1.0, total)
    return active * (vector - mean)


def _parameter_derivative(p: Tensor, parameter: Parameter, dim: int) -> Tensor:
    active = _active(p)
    total = active.sum(dim, keepdim=True)
    return active / torch.where(total == 0, 1.0, total)


def _active(p: Tensor) -> Tensor:
    """1 where 0 < p < 1, 0 elsewhere, NaN where p is."""
    return torch.where((p == 0) | (p == 1), 0.0, torch.where(p.isnan(), p, 1.0))


BUDGET = declare(
    "budget",
    budget,
    Family("budget", _jacobian_product, _parameter_derivative, fuses=lambda k: False),
    "choose k of n: entries from 0 to 1 that sum to k",
    Argument(
        "k",
        2.0,
        low=0.0,
        finite=True,
        up_to_entries=True,
        meaning="(the mass to distribute)",
        examples=(0.5, 1.0, 2.5, 5.0),
        rough=(1.0, 5.0),
    ),
    mass=lambda k: k,
)
