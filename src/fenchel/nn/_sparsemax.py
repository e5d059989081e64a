from __future__ import annotations

from torch import Tensor
from torch.nn import Module

from fenchel._checks import check_dim
from fenchel.maps import sparsemax


class Sparsemax(Module):
    """:func:`fenchel.sparsemax` as a module: projection of scores onto the probability simplex.

    Args:
        dim: axis to normalise.

    Example:
        >>> from fenchel.nn import Sparsemax
        >>> Sparsemax()(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.2500, 0.7500])

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = check_dim("nn.Sparsemax", dim)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return sparsemax(scores, self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
