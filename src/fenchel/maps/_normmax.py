from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import no_bare_int
from fenchel._dtypes import Parameter
from fenchel.maps._family import Family
from fenchel.maps.declaration import Argument, declare


@no_bare_int("normmax", "q")
def normmax(
    scores: Tensor,
    q: float | Tensor = 2.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    r"""The sparse map of the norm entropy.

    .. math::
        \operatorname{normmax}_q(\theta) = \arg\max_{p \in \triangle}
        \langle \theta, p \rangle - \|p\|_q, \qquad
        p_i \propto [\theta_i - \tau]_+^{1/(q - 1)}

    Compared with :func:`entmax`, nonzero probabilities are flatter. At :math:`q = 1` it is
    argmax (ties share); at ∞ it is uniform over the support of sparsemax. One-hot exactly when the
    best score leads by 1 or more, whatever :math:`q`. ``-inf`` is a mask; a fully masked row
    is all zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        q: exponent of the norm, a number in [1, ∞], or a tensor that broadcasts against
            ``scores`` with size 1 along ``dim``, with gradient. Its values are not checked; one
            below 1 (or NaN) makes its rows NaN.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: a temperature, f(scores / gamma): a finite number above 0, or a tensor with one per
            row, with gradient.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> normmax(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3110, 0.6890])

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """
    return NORMMAX.run(scores, q, dim, mask, gamma)


# Derivatives of normmax from its output.
#
# Let :math:`N = \|p\|_q`, :math:`w = p / N` (so :math:`\theta_i - \tau = w_i^{q-1}`),
# :math:`b_i = w_i^{2-q}` on the support and :math:`a = q - 1`. Differentiating
# :math:`\sum_i w_i^q = 1` gives :math:`d\tau = \langle p, d\theta \rangle`, and
#
# .. math:: J = \tfrac{N}{a} \left( \operatorname{diag}(b) - b p^\top - p b^\top
#     + (\textstyle\sum_i b_i) p p^\top \right).
#
# In :math:`q`: :math:`dw_i = -(w_i \log w_i + b_i \tau') / a` with :math:`\tau' = -\sum_i
# w_i^q \log w_i / (q \sum_i w_i)`, and :math:`dp = N (dw - p \sum_i dw_i)`.


def _jacobian_product(p: Tensor, parameter: Parameter, vector: Tensor, dim: int) -> Tensor:
    q, moves = _smooth_q(parameter)
    norm, _, b = _norm_and_weights(p, q, dim)
    vector = torch.where(p == 0, 0.0, vector)
    centred = b * (vector - (p * vector).sum(dim, keepdim=True))
    product = norm / (q - 1) * (centred - p * centred.sum(dim, keepdim=True))
    return torch.where(moves, product, p - p)


def _parameter_derivative(p: Tensor, parameter: Parameter, dim: int) -> Tensor:
    q, moves = _smooth_q(parameter)
    norm, w, b = _norm_and_weights(p, q, dim)
    logs = torch.where(p == 0, 1.0, w).log()
    drift = ((q * logs).exp() * logs).sum(dim, keepdim=True)
    threshold = -norm * drift / q  # 1 / sum(w) is the norm
    change = -(w * logs + b * threshold) / (q - 1)
    derivative = norm * (change - p * change.sum(dim, keepdim=True))
    return torch.where(moves, derivative, p - p)


def _smooth_q(q: Parameter) -> tuple[Parameter, Tensor]:
    """q, made harmless where the map is piecewise constant (1 and inf), and where it is not."""
    if isinstance(q, Tensor):
        moves = (q > 1) & (q < math.inf)
        return torch.where(moves, q, 2.0), moves
    fixed = 1 < q < math.inf
    return (q if fixed else 2.0), torch.tensor(fixed)


def _norm_and_weights(p: Tensor, q: Parameter, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """||p||_q, w = p / norm, and w^(2 - q) on the support."""
    inside = p != 0
    peak = torch.where(inside, p, 0.0).amax(dim, keepdim=True)
    peak = torch.where(peak == 0, 1.0, peak)  # a fully masked row
    scaled = torch.where(inside, p / peak, 1.0)
    powers = torch.where(inside, (q * scaled.log()).exp(), 0.0).sum(dim, keepdim=True)
    norm = peak * (torch.where(powers == 0, 1.0, powers).log() / q).exp()
    w = p / norm
    b = torch.where(inside, ((2 - q) * torch.where(inside, w, 1.0).log()).exp(), 0.0)
    return norm, w, b


FAMILY = Family(
    "normmax",
    _jacobian_product,
    _parameter_derivative,
    fuses=lambda q: not isinstance(q, Tensor),
)

NORMMAX = declare(
    "normmax",
    normmax,
    FAMILY,
    "few entries, with flatter shares than entmax",
    Argument(
        "q",
        2.0,
        low=1.0,
        meaning="(1 is argmax, inf is uniform on the support of sparsemax)",
        examples=(1.0, 1.001, 1.25, 1.5, 3.0, 5.0, 10.0, 50.0, math.inf),
        rough=(1.0, 1.001, 10.0, 50.0, math.inf),
    ),
    omega="Norm",
    margin=lambda q: 1.0 if q > 1 else 0.0,
)
