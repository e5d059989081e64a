from __future__ import annotations

from torch import Tensor

from fenchel._checks import no_bare_int
from fenchel._dtypes import Parameter
from fenchel.maps._family import Family
from fenchel.maps._power_jacobian import power_product
from fenchel.maps.declaration import Argument, declare


@no_bare_int("renyimax", "beta")
def renyimax(
    scores: Tensor,
    beta: float = 0.5,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    r"""The dense map of Rényi's entropy: softmax with heavier tails.

    .. math::
        \operatorname{renyimax}_\beta(\theta) = \arg\max_{p \in \triangle}
        \langle \theta, p \rangle + \frac{1}{1 - \beta} \log \sum_i p_i^\beta, \qquad
        p_i \propto (\lambda - \theta_i)^{-1/(1 - \beta)}

    At :math:`\beta = 1` it is softmax. Below 1 low scores keep more: probabilities fall as a power
    of the distance to the best score, not exponentially, and no entry gets 0 (an entry is 0 only
    where its probability is too small for the dtype). ``-inf`` is a mask; a fully masked row is all
    zeros; a row with NaN or ``+inf`` is all NaN.

    Args:
        scores: any shape, floating dtype.
        beta: order of the entropy, a number in (0, 1]; above 1 it is not concave.
        dim: axis to normalise.
        mask: broadcastable boolean, True where an entry may receive mass.
        gamma: a temperature, f(scores / gamma): a finite number above 0, or a tensor with one per
            row, with gradient.

    Returns:
        Probabilities of the shape and dtype of ``scores``.

    Example:
        >>> renyimax(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0391, 0.2588, 0.7021])

    References:
        Blondel, Martins & Niculae. Learning Classifiers with Fenchel-Young Losses: Generalized
        Entropies, Margins, and Algorithms. AISTATS 2019.
    """
    return RENYIMAX.run(scores, beta, dim, mask, gamma)


# Derivatives from the output. With :math:`S = \sum_i p_i^\beta`, minus the entropy has the
# Hessian :math:`\frac{\beta}{S} \operatorname{diag}(p^{\beta-2}) + \frac{\beta^2}{(1-\beta) S^2}
# p^{\beta-1} (p^{\beta-1})^\top`; its inverse is that of _power_jacobian.py over :math:`\beta`.


def _jacobian_product(p: Tensor, parameter: Parameter, vector: Tensor, dim: int) -> Tensor:
    return power_product(p, parameter, parameter, vector, dim) / parameter


RENYIMAX = declare(
    "renyimax",
    renyimax,
    Family("renyimax", _jacobian_product, None, fuses=lambda beta: False),
    "dense, with heavier tails than softmax",
    Argument(
        "beta",
        0.5,
        low=0.0,
        above=True,
        high=1.0,
        meaning="(1 is softmax; above it the entropy is not concave)",
        per_row=False,
        examples=(1.0, 0.999, 0.9, 0.1, 0.001),
        rough=(0.001,),
    ),
    omega="Renyi",
    sparse=lambda beta: False,
)
