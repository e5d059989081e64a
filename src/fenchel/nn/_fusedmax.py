from __future__ import annotations

import math

from torch import Tensor
from torch.nn import Module

from fenchel._checks import FenchelError, check_dim, check_number, no_bare_int
from fenchel.maps import fusedmax
from fenchel.nn._arguments import written


class Fusedmax(Module):
    r""":func:`fenchel.fusedmax` as a module: sparse, and equal over stretches of neighbours.

    Args:
        lam: weight of the penalty, a number of at least 0.
        gamma: weight of the whole regularizer, a finite number above 0.
        dim: axis to normalise.

    Example:
        >>> from fenchel.nn import Fusedmax
        >>> Fusedmax(lam=0.1)(torch.tensor([0.2, 0.1, -0.5]))
        tensor([0.5000, 0.5000, 0.0000])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """

    @no_bare_int("nn.Fusedmax", "lam")
    def __init__(self, lam: float = 0.1, gamma: float = 1.0, dim: int = -1) -> None:
        super().__init__()
        self.lam = check_number("nn.Fusedmax", "lam", lam, 0.0, "(0 is sparsemax)")
        self.gamma = check_number("nn.Fusedmax", "gamma", gamma, 0.0, "(and above it)")
        if not 0 < self.gamma < math.inf:
            raise FenchelError(
                f"nn.Fusedmax: `gamma` must be a finite number above 0; got {gamma!r}."
            )
        self.dim = check_dim("nn.Fusedmax", dim)

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return fusedmax(scores, self.lam, self.gamma, self.dim, mask=mask, lengths=lengths)

    def extra_repr(self) -> str:
        return f"lam={written(self.lam)}, gamma={written(self.gamma)}, dim={self.dim}"
