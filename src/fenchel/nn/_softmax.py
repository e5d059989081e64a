from __future__ import annotations

from torch import Tensor
from torch.nn import Module

from fenchel._checks import check_dim
from fenchel.maps import softmax


class Softmax(Module):
    """:func:`fenchel.softmax` as a module: the dense member of the family.

    It differs from :class:`torch.nn.Softmax` in that a fully masked row gives zeros.

    Args:
        dim: axis to normalise.

    Example:
        >>> from fenchel.nn import Softmax
        >>> Softmax()(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0486, 0.3592, 0.5922])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = check_dim("nn.Softmax", dim)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return softmax(scores, self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
