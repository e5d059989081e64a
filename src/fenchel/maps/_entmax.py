from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import check_parameter
from fenchel.maps._family import Family, Parameter
from fenchel.maps._prepare import apply, prepare


def entmax(
    scores: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, *, mask: Tensor | None = None
) -> Tensor:
    r"""Sparse softmax with a dial: :math:`\alpha = 1` is softmax, 2 is sparsemax, ∞ is argmax.

    .. math::
        \operatorname{entmax}_\alpha(\theta) = \arg\max_{p \in \triangle}
        \langle \theta, p \rangle + \frac{1}{\alpha (\alpha - 1)} \sum_i (p_i - p_i^\alpha),
        \qquad p_i = [(\alpha - 1)(\theta_i - \tau)]_+^{1/(\alpha - 1)}

    For :math:`\alpha > 1` low scores get probability exactly 0, more of them the larger
    :math:`\alpha` is, and the answer is one-hot exactly when the best score leads by
    :math:`1/(\alpha - 1)` or more. 1, 1.5, 2 and ∞ take paths of their own. ``-inf``
    is a mask; a fully masked row is all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        alpha: a number in [1, ∞], or a tensor that broadcasts against ``scores`` with size 1 along
            ``dim``: one value for all, per row, per head or per batch. A tensor may require
            gradient; its values are not checked, and one below 1 (or NaN) makes its rows NaN.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> entmax(torch.tensor([-1.0, 0.0, 0.5]), alpha=1.33)
        tensor([0.0460, 0.3276, 0.6264])

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019 (gradient in α).
    """
    scores, dim = prepare("entmax", scores, dim, mask)
    parameter = check_parameter("entmax", "alpha", alpha, scores, dim, 1.0, _MEANING)
    return apply(ENTMAX, scores, parameter, dim)


_MEANING = "(1 is softmax, 2 is sparsemax)"


# Derivatives of entmax from its output.
#
# With :math:`s_i = p_i^{2-\alpha}` on the support and 0 off it, the Jacobian is
# :math:`\operatorname{diag}(s) - s s^\top / \sum_i s_i`.
#
# In :math:`\alpha`, write :math:`a = \alpha - 1`, :math:`\ell_i = \log p_i`. At a fixed
# threshold, :math:`\partial p_i / \partial \alpha = -d_i` with :math:`d_i = p_i \ell_i^2
# \varphi(a \ell_i)`, :math:`\varphi(y) = (e^{-y} - 1 + y) / y^2`, which is smooth at
# :math:`a = 0`; the threshold moves so that the sum stays 1, which subtracts the mean of
# :math:`d` with weights :math:`s`.


def _jacobian_product(p: Tensor, parameter: Parameter, vector: Tensor, dim: int) -> Tensor:
    s = _sensitivity(p, parameter)
    if isinstance(parameter, Tensor) or parameter > 2:
        # s grows without bound as p falls. Relative to the entry with the largest s there is
        # nothing large left to cancel.
        largest = s.detach().argmax(dim, keepdim=True)
        vector = vector - vector.gather(dim, largest)
    vector = torch.where(p == 0, 0.0, vector)
    mean = (s * vector).sum(dim, keepdim=True) / _nonzero(s.sum(dim, keepdim=True))
    return s * (vector - mean)


def _parameter_derivative(p: Tensor, parameter: Parameter, dim: int) -> Tensor:
    inside = p != 0
    s = _sensitivity(p, parameter)
    logs = torch.where(inside, p, 1.0).log()
    a = _finite(parameter) - 1
    if isinstance(a, Tensor):
        steep_a = a.clamp(min=1.0)
        # Each branch is kept finite where the other is taken: NaN would leak from it backwards.
        flat = p * logs * logs * _second_remainder(a.clamp(max=1.0) * logs)
        d = torch.where(a > 1, p * (steep_a * logs - 1) / (steep_a * steep_a), flat)
    elif a > 1:
        # d is then dominated by s / a^2, a part that drops out of the answer: left away.
        d = p * (a * logs - 1) / (a * a)
    else:
        d = p * logs * logs * _second_remainder(a * logs)
    mean = d.sum(dim, keepdim=True) / _nonzero(s.sum(dim, keepdim=True))
    return _flat_at_infinity(s * mean - d, parameter)


def _sensitivity(p: Tensor, alpha: Parameter) -> Tensor:
    """p^(2 - alpha) on the support, 0 off it, NaN where p is."""
    if not isinstance(alpha, Tensor):
        if alpha == 1:
            return p
        if alpha == 2:
            return torch.where(p == 0, 0.0, torch.where(p.isnan(), p, 1.0))
        if alpha == math.inf:
            return torch.zeros_like(p) * p
    inside = p != 0
    power = (2 - _finite(alpha)) * torch.where(inside, p, 1.0).log()
    # Past the square root of the largest number s is as good as infinite; products stay finite.
    cut = math.log(torch.finfo(p.dtype).max) / 2
    s = torch.where(inside, power.clamp(max=cut).exp(), 0.0)
    return _flat_at_infinity(s, alpha)


def _finite(alpha: Parameter) -> Parameter:
    """alpha, cut off where nothing changes any more: inf times 0 would be NaN."""
    return alpha.clamp(max=1e15) if isinstance(alpha, Tensor) else min(alpha, 1e15)


def _flat_at_infinity(value: Tensor, alpha: Parameter) -> Tensor:
    """argmax does not move with its scores or with alpha."""
    if isinstance(alpha, Tensor):
        return torch.where(alpha == math.inf, 0.0, value)
    return value


def _nonzero(total: Tensor) -> Tensor:
    return torch.where(total == 0, 1.0, total)


def _second_remainder(y: Tensor) -> Tensor:
    """(exp(-y) - 1 + y) / y^2 for y <= 0: a series near 0, where the quotient cancels."""
    far = y < -0.5
    safe = torch.where(far, y, -1.0)
    quotient = (torch.expm1(-safe) + safe) / (safe * safe)
    near = torch.where(far, 0.0, y)
    series = torch.full_like(y, 1.0 / math.factorial(16))
    for k in range(15, 1, -1):
        series = 1.0 / math.factorial(k) - near * series
    return torch.where(far, quotient, series)


ENTMAX = Family(
    "entmax",
    _jacobian_product,
    _parameter_derivative,
    fuses=lambda alpha: not isinstance(alpha, Tensor) and alpha <= 2,
)
