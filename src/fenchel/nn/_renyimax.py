from __future__ import annotations

from torch import Tensor
from torch.nn import Module

from fenchel._checks import check_dim, check_positive, no_bare_int
from fenchel.maps import renyimax


class Renyimax(Module):
    r""":func:`fenchel.renyimax` as a module: softmax with heavier tails.

    Args:
        beta: order of the entropy, a number in (0, 1]; 1 is softmax.
        dim: axis to normalise.

    Example:
        >>> from fenchel.nn import Renyimax
        >>> Renyimax(beta=0.5)(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0391, 0.2588, 0.7021])

    References:
        Blondel, Martins & Niculae. Learning Classifiers with Fenchel-Young Losses: Generalized
        Entropies, Margins, and Algorithms. AISTATS 2019.
    """

    @no_bare_int("nn.Renyimax", "beta")
    def __init__(self, beta: float = 0.5, dim: int = -1) -> None:
        super().__init__()
        self.beta = check_positive("nn.Renyimax", "beta", beta, 1.0, _EXPECTED)
        self.dim = check_dim("nn.Renyimax", dim)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return renyimax(scores, self.beta, self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"beta={self.beta!r}, dim={self.dim}"


_EXPECTED = "in (0, 1], where Rényi's entropy is concave (1 is softmax)"
