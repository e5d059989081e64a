from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import no_bare_int
from fenchel._dtypes import Parameter
from fenchel.maps._entmax_curve import drift, nonzero, sensitivity
from fenchel.maps._family import Family
from fenchel.maps.declaration import Argument, declare


@no_bare_int("entmax", "alpha")
def entmax(
    scores: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    r"""Sparse softmax with a dial: :math:`\alpha = 1` is softmax, 2 is sparsemax, ∞ is argmax.

    .. math::
        \operatorname{entmax}_\alpha(\theta) = \arg\max_{p \in \triangle}
        \langle \theta, p \rangle + \frac{1}{\alpha (\alpha - 1)} \sum_i (p_i - p_i^\alpha),
        \qquad p_i = [(\alpha - 1)(\theta_i - \tau)]_+^{1/(\alpha - 1)}

    For :math:`\alpha > 1` low scores get probability exactly 0, more of them the larger
    :math:`\alpha` is, and the answer is one-hot exactly when the best score leads by
    :math:`1/(\alpha - 1)` or more. 1, 1.5, 2 and ∞ take paths of their own. For :math:`0 < \alpha
    < 1` the answer is dense and has heavy tails, :math:`p_i = (1 + (1 - \alpha)(\tau -
    \theta_i))^{-1/(1 - \alpha)}`: it falls as a power of the score, not exponentially. ``-inf``
    is a mask; a fully masked row is all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        alpha: a number in (0, ∞], or a tensor that broadcasts against ``scores`` with size 1 along
            ``dim``: one value for all, per row, per head or per batch. A tensor may require
            gradient; its values are not checked, and one of 0 or less (or NaN) makes its rows NaN.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: a temperature, f(scores / gamma): a finite number above 0, or a tensor with one per
            row, with gradient.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> entmax(torch.tensor([-1.0, 0.0, 0.5]), alpha=1.33)
        tensor([0.0460, 0.3276, 0.6264])

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019 (gradient in α).
    """
    return ENTMAX.run(scores, alpha, dim, mask, gamma)


def _jacobian_product(p: Tensor, parameter: Parameter, vector: Tensor, dim: int) -> Tensor:
    s = sensitivity(p, parameter)
    if isinstance(parameter, Tensor) or parameter > 2:
        # s grows without bound as p falls. Relative to the entry with the largest s there is
        # nothing large left to cancel.
        largest = s.detach().argmax(dim, keepdim=True)
        vector = vector - vector.gather(dim, largest)
    vector = torch.where(p == 0, 0.0, vector)
    mean = (s * vector).sum(dim, keepdim=True) / nonzero(s.sum(dim, keepdim=True))
    return s * (vector - mean)


def _parameter_derivative(p: Tensor, parameter: Parameter, dim: int) -> Tensor:
    s, d = sensitivity(p, parameter), drift(p, parameter)
    mean = d.sum(dim, keepdim=True) / nonzero(s.sum(dim, keepdim=True))
    return s * mean - d


FAMILY = Family(
    "entmax",
    _jacobian_product,
    _parameter_derivative,
    fuses=lambda alpha: not isinstance(alpha, Tensor) and alpha <= 2,
)

ALPHA = Argument(
    "alpha",
    1.5,
    low=0.0,
    above=True,
    meaning="(1 is softmax, 2 is sparsemax)",
    examples=(
        *(1.0, 1.001, 1.25, 1.75, 2.0, 2.5, 4.0, 50.0, 1e4, math.inf),
        *(0.01, 0.1, 0.5, 0.9, 0.999),
    ),
    rough=(50.0, 1e4, math.inf),
)

ENTMAX = declare(
    "entmax",
    entmax,
    FAMILY,
    "one dial from softmax (1) over sparsemax (2) to argmax (∞)",
    ALPHA,
    omega="Tsallis",
    margin=lambda alpha: math.inf if alpha <= 1 else 1 / (alpha - 1),
    sparse=lambda alpha: alpha > 1,
)
