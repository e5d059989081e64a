from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import check_parameter, no_bare_int
from fenchel.maps._family import Family, Parameter
from fenchel.maps._prepare import apply, prepare


@no_bare_int("normmax", "alpha")
def normmax(
    scores: Tensor, alpha: float | Tensor = 2.0, dim: int = -1, *, mask: Tensor | None = None
) -> Tensor:
    r"""The sparse map of the norm entropy.

    .. math::
        \operatorname{normmax}_\alpha(\theta) = \arg\max_{p \in \triangle}
        \langle \theta, p \rangle - \|p\|_\alpha, \qquad
        p_i \propto [\theta_i - \tau]_+^{1/(\alpha - 1)}

    Compared with :func:`entmax`, nonzero probabilities are flatter. At :math:`\alpha = 1` it is
    argmax (ties share); at ∞ it is uniform over the support of sparsemax. One-hot exactly when the
    best score leads by 1 or more, whatever :math:`\alpha`. ``-inf`` is a mask; a fully masked row
    is all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        alpha: a number in [1, ∞], or a tensor that broadcasts against ``scores`` with size 1 along
            ``dim``, with gradient. Its values are not checked; one below 1 (or NaN) makes its
            rows NaN.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> normmax(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3110, 0.6890])

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """
    scores, dim = prepare("normmax", scores, dim, mask)
    parameter = check_parameter("normmax", "alpha", alpha, scores, dim, 1.0, _MEANING)
    return apply(NORMMAX, scores, parameter, dim)


_MEANING = "(1 is argmax, inf is uniform on the support of sparsemax)"


# Derivatives of normmax from its output.
#
# Let :math:`N = \|p\|_\alpha`, :math:`w = p / N` (so :math:`\theta_i - \tau = w_i^{\alpha-1}`),
# :math:`b_i = w_i^{2-\alpha}` on the support and :math:`a = \alpha - 1`. Differentiating
# :math:`\sum_i w_i^\alpha = 1` gives :math:`d\tau = \langle p, d\theta \rangle`, and
#
# .. math:: J = \tfrac{N}{a} \left( \operatorname{diag}(b) - b p^\top - p b^\top
#     + (\textstyle\sum_i b_i) p p^\top \right).
#
# In :math:`\alpha`: :math:`dw_i = -(w_i \log w_i + b_i \tau') / a` with :math:`\tau' = -\sum_i
# w_i^\alpha \log w_i / (\alpha \sum_i w_i)`, and :math:`dp = N (dw - p \sum_i dw_i)`.


def _jacobian_product(p: Tensor, parameter: Parameter, vector: Tensor, dim: int) -> Tensor:
    alpha, moves = _smooth_alpha(parameter)
    norm, _, b = _norm_and_weights(p, alpha, dim)
    vector = torch.where(p == 0, 0.0, vector)
    centred = b * (vector - (p * vector).sum(dim, keepdim=True))
    product = norm / (alpha - 1) * (centred - p * centred.sum(dim, keepdim=True))
    return torch.where(moves, product, p - p)


def _parameter_derivative(p: Tensor, parameter: Parameter, dim: int) -> Tensor:
    alpha, moves = _smooth_alpha(parameter)
    norm, w, b = _norm_and_weights(p, alpha, dim)
    logs = torch.where(p == 0, 1.0, w).log()
    drift = ((alpha * logs).exp() * logs).sum(dim, keepdim=True)
    threshold = -norm * drift / alpha  # 1 / sum(w) is the norm
    change = -(w * logs + b * threshold) / (alpha - 1)
    derivative = norm * (change - p * change.sum(dim, keepdim=True))
    return torch.where(moves, derivative, p - p)


def _smooth_alpha(alpha: Parameter) -> tuple[Parameter, Tensor]:
    """alpha, made harmless where the map is piecewise constant (1 and inf), and where it is not."""
    if isinstance(alpha, Tensor):
        moves = (alpha > 1) & (alpha < math.inf)
        return torch.where(moves, alpha, 2.0), moves
    fixed = 1 < alpha < math.inf
    return (alpha if fixed else 2.0), torch.tensor(fixed)


def _norm_and_weights(p: Tensor, alpha: Parameter, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """||p||_alpha, w = p / norm, and w^(2 - alpha) on the support."""
    inside = p != 0
    peak = torch.where(inside, p, 0.0).amax(dim, keepdim=True)
    peak = torch.where(peak == 0, 1.0, peak)  # a fully masked row
    scaled = torch.where(inside, p / peak, 1.0)
    powers = torch.where(inside, (alpha * scaled.log()).exp(), 0.0).sum(dim, keepdim=True)
    norm = peak * (torch.where(powers == 0, 1.0, powers).log() / alpha).exp()
    w = p / norm
    b = torch.where(inside, ((2 - alpha) * torch.where(inside, w, 1.0).log()).exp(), 0.0)
    return norm, w, b


NORMMAX = Family(
    "normmax",
    _jacobian_product,
    _parameter_derivative,
    fuses=lambda alpha: not isinstance(alpha, Tensor),
)
