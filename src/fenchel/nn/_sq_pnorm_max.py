from __future__ import annotations

import sys

from torch import Tensor
from torch.nn import Module

from fenchel._checks import check_dim, check_number, check_positive, no_bare_int
from fenchel.maps import sq_pnorm_max
from fenchel.nn._arguments import written


class SqPnormMax(Module):
    r""":func:`fenchel.sq_pnorm_max` as a module: the sparse map of the squared norm.

    Args:
        p: exponent of the norm, a number in [1, ∞].
        gamma: weight of the norm, a positive number.
        dim: axis to normalise.

    Example:
        >>> from fenchel.nn import SqPnormMax
        >>> SqPnormMax(p=1.5)(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.1526, 0.8474])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """

    @no_bare_int("nn.SqPnormMax", "p")
    def __init__(self, p: float = 1.5, gamma: float = 1.0, dim: int = -1) -> None:
        super().__init__()
        name = "nn.SqPnormMax"
        self.p = check_number(name, "p", p, 1.0, "(1 is argmax, 2 is sparsemax)")
        self.gamma = check_positive(
            name, "gamma", gamma, sys.float_info.max, "a positive finite number"
        )
        self.dim = check_dim(name, dim)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return sq_pnorm_max(scores, self.p, self.gamma, self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"p={written(self.p)}, gamma={self.gamma!r}, dim={self.dim}"
