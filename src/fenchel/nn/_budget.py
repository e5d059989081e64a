from __future__ import annotations

from torch import Tensor
from torch.nn import Module

from fenchel._checks import FenchelError, check_dim, check_number
from fenchel.maps import budget


class Budget(Module):
    """:func:`fenchel.budget` as a module: sparse choice of ``k`` out of ``n``.

    Args:
        k: how much to distribute, a number of at least 0 (it need not be whole); at most the
            number of entries along ``dim``, which shows when the scores come.
        dim: axis to normalise.

    Example:
        >>> from fenchel.nn import Budget
        >>> Budget(k=2)(torch.tensor([1.0, 0.2, -0.1, -3.0]))
        tensor([1.0000, 0.6500, 0.3500, 0.0000])

    References:
        Martins & Kreutzer. Learning What's Easy: Fully Differentiable Neural Easy-First Taggers.
        EMNLP 2017 (constrained sparsemax).
    """

    def __init__(self, k: float = 2.0, dim: int = -1) -> None:
        super().__init__()
        self.k = check_number("nn.Budget", "k", k, 0.0, "(the mass to distribute)")
        if self.k == float("inf"):
            raise FenchelError("nn.Budget: expected a finite `k`, but got inf.")
        self.dim = check_dim("nn.Budget", dim)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Inclusion probabilities; ``mask`` is True where mass may go."""
        return budget(scores, self.k, self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"k={self.k!r}, dim={self.dim}"
