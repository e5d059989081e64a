from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_number
from fenchel.maps import renyimax
from fenchel.regularizers._base import Regularizer, wide


class Renyi(Regularizer):
    r"""The Rényi entropies that are concave: maps with full support and heavy tails.

    .. math:: \Omega(p) = \frac{1}{\beta - 1} \log \sum_i p_i^\beta

    The map is :func:`fenchel.renyimax`. No probability is ever 0, so there is no margin. β = 1 is
    :class:`Shannon`.

    Args:
        beta: a number in (0, 1]; above 1 the entropy is not concave.

    Example:
        >>> omega = fy.Renyi(0.5)
        >>> omega(torch.tensor([0.25, 0.25, 0.25, 0.25])), omega.margin
        (tensor(-1.3863), inf)

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """

    def __init__(self, beta: float = 0.5) -> None:
        self.beta = check_number("Renyi", "beta", beta, 0.0, _MEANING)
        if not 0 < self.beta <= 1:
            raise FenchelError(
                f"Renyi: `beta` must be in (0, 1], where the entropy is concave; got {beta!r}."
            )

    @property
    def margin(self) -> float:
        """∞: no score is high enough for a loss of exactly 0."""
        return math.inf

    def omega_rows(self, p: Tensor) -> Tensor:
        if self.beta == 1:
            return torch.xlogy(p, p).sum(-1)
        logs = torch.where(p == 0, 1.0, p).log()
        # sum(p^beta) - 1 = sum p expm1((beta - 1) log p), which keeps its digits as beta nears 1.
        excess = (p * torch.expm1((self.beta - 1) * logs)).sum(-1) + (p.sum(-1) - 1)
        return torch.log1p(excess) / (self.beta - 1)

    def gradient_rows(self, p: Tensor) -> Tensor:
        if self.beta == 1:
            return p.log()
        excess = self.beta - 1
        total = p.pow(self.beta).sum(-1, keepdim=True)
        return self.beta * torch.expm1(excess * p.log() - total.log()) / excess

    def predict_rows(self, scores: Tensor) -> Tensor:
        return renyimax(scores, self.beta)

    def _divergence(self, scores: Tensor, p: Tensor, target: Tensor) -> Tensor:
        # 1/(1 - beta) enlarges what rounding took from the sum of p.
        return super()._divergence(scores, _normalised(p), _normalised(target))

    def __repr__(self) -> str:
        return f"Renyi(beta={self.beta:g})"


_MEANING = "(it lies in (0, 1], 1 is Shannon's entropy)"


def _normalised(p: Tensor) -> Tensor:
    p = wide(p)
    total = p.sum(-1, keepdim=True)
    return p / torch.where(total == 0, 1.0, total)
