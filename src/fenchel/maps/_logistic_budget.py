from __future__ import annotations

import torch
from torch import Tensor

from fenchel._dtypes import Parameter
from fenchel.maps._family import Family
from fenchel.maps.declaration import Argument, declare


def logistic_budget(
    scores: Tensor,
    k: float | Tensor = 2.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    r"""Dense choice of ``k`` out of ``n``: sigmoids with one threshold, which sum to ``k``.

    .. math::
        \operatorname{logistic-budget}_k(\theta) = \arg\max_{0 \le p \le 1, \; \sum_i p_i = k}
        \langle \theta, p \rangle - \sum_i (p_i \log p_i + (1 - p_i) \log (1 - p_i)),
        \qquad p_i = \frac{1}{1 + e^{\tau - \theta_i}}

    A smooth top-k: no entry is exactly 0 or 1 (unless it is too close for the dtype), so every one
    gets a gradient. :func:`budget` is its sparse relative. A small ``gamma`` makes it harder. A row
    with at most ``k`` unmasked entries gives each of them 1. ``-inf`` is a mask; a fully masked
    row is all zeros; a row with NaN or ``+inf`` is all NaN.

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
        >>> logistic_budget(torch.tensor([1.0, 0.2, -0.1, -3.0]), k=2)
        tensor([0.7808, 0.6155, 0.5425, 0.0612])

    References:
        Amos, Koltun & Kolter. The Limited Multi-Label Projection Layer. 2019.
    """
    return LOGISTIC_BUDGET.run(scores, k, dim, mask, gamma)


# Derivatives from the output: with :math:`s = p (1 - p)` the Jacobian is :math:`\operatorname{diag}
# (s) - s s^\top / \sum_i s_i`, and a change of ``k`` is shared as s is. Where all entries are 0 or
# 1, both are 0.


def _jacobian_product(p: Tensor, parameter: Parameter, vector: Tensor, dim: int) -> Tensor:
    s = p * (1 - p)
    vector = torch.where(s == 0, 0.0, vector)
    return s * (vector - (_shares(s, dim) * vector).sum(dim, keepdim=True))


def _parameter_derivative(p: Tensor, parameter: Parameter, dim: int) -> Tensor:
    return _shares(p * (1 - p), dim)


def _shares(s: Tensor, dim: int) -> Tensor:
    total = s.sum(dim, keepdim=True)
    return s / torch.where(total == 0, 1.0, total)


LOGISTIC_BUDGET = declare(
    "logistic_budget",
    logistic_budget,
    Family("logistic_budget", _jacobian_product, _parameter_derivative, fuses=lambda k: False),
    "choose k of n, smoothly: sigmoids that sum to k",
    Argument(
        "k",
        2.0,
        low=0.0,
        finite=True,
        up_to_entries=True,
        meaning="(the mass to distribute)",
        examples=(0.5, 1.0, 2.5, 5.0),
        rough=(5.0,),  # all of the five entries that tests differentiate
    ),
    sparse=lambda k: False,
    mass=lambda k: k,
)
