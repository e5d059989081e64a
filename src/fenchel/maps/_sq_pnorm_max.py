from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import no_bare_int
from fenchel._dtypes import Parameter
from fenchel.maps._family import Family
from fenchel.maps._power_jacobian import power_product, power_sum
from fenchel.maps.declaration import Argument, declare


@no_bare_int("sq_pnorm_max", "q")
def sq_pnorm_max(
    scores: Tensor,
    q: float = 1.5,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    r"""The sparse map of the squared norm: sparsemax with another exponent.

    .. math::
        \operatorname{sq-pnorm-max}(\theta) = \arg\max_{\mu \in \triangle}
        \langle \theta, \mu \rangle - \frac{\gamma}{2} \|\mu\|_q^2, \qquad
        \mu_i \propto [\theta_i / \gamma - \tau]_+^{1/(q - 1)}

    At :math:`q = 2` it is sparsemax. Towards 1 (argmax, ties sharing) fewer entries get more of the
    mass; above 2 more of them get similar mass, up to ∞, where all but the last ones of the support
    get the same. One-hot exactly when the best score leads by ``gamma`` or more, whatever ``q``.
    Take :func:`entmax` if the exponent should be learned. ``-inf`` is a mask; a fully masked row is
    all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        q: exponent of the norm, a number in [1, ∞].
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: a temperature, f(scores / gamma): a finite number above 0, or a tensor with one per
            row, with gradient.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> sq_pnorm_max(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.1526, 0.8474])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """
    return SQ_PNORM_MAX.run(scores, q, dim, mask, gamma)


# Derivatives of sq_pnorm_max from its output.
#
# The Hessian of :math:`\|\mu\|_q^2 / 2` is :math:`(q-1) N^{2-q} \operatorname{diag}(\mu^{q-2}) +
# (2-q) N^{2-2q} \mu^{q-1} (\mu^{q-1})^\top`, :math:`N = \|\mu\|_q`; its inverse is that of
# _power_jacobian.py over :math:`(q-1) N^2`. q = 1 is flat. At q = ∞ the k entries with the largest
# mass have :math:`\sum_{i \le k} (\theta_i - \tau)` each, and the m entries at the threshold (in
# general one) what is left: with v = 1 on the first and -k/m on the second, J is :math:`v v^\top`.
# Without an entry at the threshold all mass is 1/k, and J is 0.


def _jacobian_product(p: Tensor, parameter: Parameter, vector: Tensor, dim: int) -> Tensor:
    if not isinstance(parameter, Tensor):
        if parameter == 1:
            return p - p + torch.zeros_like(vector)
        if parameter > _LARGEST:
            return _product_at_infinity(p, vector, dim)
        return _product(p, parameter, vector, dim)
    smooth = (parameter > 1) & (parameter <= _LARGEST)
    product = _product(p, torch.where(smooth, parameter, 2.0), vector, dim)
    product = torch.where(parameter > _LARGEST, _product_at_infinity(p, vector, dim), product)
    return torch.where(parameter == 1, p - p, product)


_LARGEST = 1e18  # as in the kernels: what is above is taken for infinite


def _product(p: Tensor, q: Parameter, vector: Tensor, dim: int) -> Tensor:
    peak, _, powers = power_sum(p, q, dim)
    squared_norm = peak * peak * (2 / q * powers.log()).exp()
    return power_product(p, q, 2 - q, vector, dim) / ((q - 1) * squared_norm)


def _product_at_infinity(p: Tensor, vector: Tensor, dim: int) -> Tensor:
    top = p == p.amax(dim, keepdim=True)
    last = (p != 0) & ~top
    count = last.sum(dim, keepdim=True)
    ratio = (top & (p != 0)).sum(dim, keepdim=True) / count.clamp(min=1)
    direction = torch.where(last, -ratio, torch.where(top, 1.0, 0.0)).to(p.dtype)
    direction = torch.where((count == 0) | (p == 0), 0.0, direction) + (p - p)
    along = direction * torch.where(p == 0, 0.0, vector)
    return direction * along.sum(dim, keepdim=True)


SQ_PNORM_MAX = declare(
    "sq_pnorm_max",
    sq_pnorm_max,
    Family("sq_pnorm_max", _jacobian_product, None, fuses=lambda q: False),
    "sparsemax with another exponent",
    Argument(
        "q",
        1.5,
        low=1.0,
        meaning="(1 is argmax, 2 is sparsemax)",
        per_row=False,
        examples=(1.0, 1.001, 1.25, 1.75, 2.0, 2.5, 4.0, 50.0, 1e4, math.inf),
        rough=(1.0, 1.001, 50.0, 1e4, math.inf),
    ),
    omega="SquaredNorm",
    margin=lambda q: 1.0 if q > 1 else 0.0,
)
