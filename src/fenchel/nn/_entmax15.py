from __future__ import annotations

from torch import Tensor
from torch.nn import Module

from fenchel._checks import check_dim
from fenchel.maps import entmax15


class Entmax15(Module):
    r""":func:`fenchel.entmax15` as a module: entmax at :math:`\alpha = 1.5`.

    Args:
        dim: axis to normalise.

    Example:
        >>> from fenchel.nn import Entmax15
        >>> Entmax15()(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3260, 0.6740])

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = check_dim("nn.Entmax15", dim)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return entmax15(scores, self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
