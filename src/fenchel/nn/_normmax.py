from __future__ import annotations

from torch import Tensor
from torch.nn import Module

from fenchel._checks import check_dim, check_number, no_bare_int
from fenchel.maps import normmax
from fenchel.nn._arguments import written


class Normmax(Module):
    r""":func:`fenchel.normmax` as a module: the sparse map of the norm entropy.

    Args:
        alpha: a number in [1, ∞].
        dim: axis to normalise.

    Example:
        >>> from fenchel.nn import Normmax
        >>> Normmax(alpha=2.0)(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3110, 0.6890])

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """

    @no_bare_int("nn.Normmax", "alpha")
    def __init__(self, alpha: float = 2.0, dim: int = -1) -> None:
        super().__init__()
        self.alpha = check_number("nn.Normmax", "alpha", alpha, 1.0, _MEANING)
        self.dim = check_dim("nn.Normmax", dim)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return normmax(scores, alpha=self.alpha, dim=self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"alpha={written(self.alpha)}, dim={self.dim}"


_MEANING = "(1 is argmax, inf is uniform on the support of sparsemax)"
