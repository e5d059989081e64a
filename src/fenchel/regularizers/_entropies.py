"""Entropies as regularizers: Tsallis', with Shannon's and Gini's among them, and Rényi's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._dtypes import widen
from fenchel._targets import is_index
from fenchel.maps.declaration import MAPS
from fenchel.regularizers._tsallis_loss import fused_loss
from fenchel.regularizers.of_map import MapRegularizer
from fenchel.regularizers.registry import listed
from fenchel.regularizers.tsallis_curve import divergence, log_a, omega, slope

__all__ = ["Gini", "Renyi", "Shannon", "Tsallis", "Zero"]


@listed
class Tsallis(MapRegularizer):
    r"""The Tsallis entropies: entmax, its losses, and all between softmax and argmax.

    .. math:: \Omega_\alpha(p) = \frac{1}{\alpha(\alpha - 1)} \sum_i (p_i^\alpha - p_i)
        \quad (\alpha \ne 1), \qquad \Omega_1(p) = \sum_i p_i \log p_i, \qquad \Omega_\infty = 0

    The map is :func:`fenchel.entmax`, the margin :math:`1/(\alpha - 1)`. For :math:`\alpha \le 1`
    the map is dense and there is no margin: below 1 its tails are heavier than softmax's.

    Args:
        alpha: a number in (0, ∞], or a tensor that broadcasts against the scores with size 1 along
            ``dim``: per row, per head, learnable. A tensor's values are not checked.

    Example:
        >>> omega = fy.Tsallis(1.5)
        >>> scores = torch.tensor([2.5, 0.5, 0.0])
        >>> omega.predict(scores), omega.margin
        (tensor([1., 0., 0.]), 2.0)
        >>> omega.loss(scores, torch.tensor(0)), omega.loss(scores, torch.tensor(1))
        (tensor(0.), tensor(2.))

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """

    map = MAPS["entmax"]
    alpha: float | Tensor

    def __init__(self, alpha: float | Tensor = 1.5) -> None:
        super().__init__(alpha)

    def omega_rows(self, p: Tensor) -> Tensor:
        return omega(p, self.alpha)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return log_a(p, self.alpha)

    def slope_rows(self, p: Tensor) -> Tensor:
        return slope(p, self.alpha)

    def _divergence(self, scores: Tensor, p: Tensor, target: Tensor) -> Tensor:
        return divergence(target, p, self.alpha, scores)

    def _bregman(self, y: Tensor, p: Tensor) -> Tensor:
        return divergence(y, p, self.alpha)

    def loss_rows(self, scores: Tensor, target: Tensor) -> Tensor:
        fused = fused_loss(scores, target, self.alpha) if is_index(target) else None
        return super().loss_rows(scores, target) if fused is None else fused


@listed
class Shannon(Tsallis):
    r"""Shannon's entropy: softmax, log-sum-exp and the logistic loss.

    .. math:: \Omega(p) = \sum_i p_i \log p_i, \qquad \Omega^*(\theta) = \log \sum_i e^{\theta_i}

    It has no margin: the loss is 0 only in the limit. It is :class:`Tsallis` at α = 1.

    Example:
        >>> fy.Shannon().loss(torch.tensor([0.0, 0.0]), torch.tensor(1))
        tensor(0.6931)
    """

    def __init__(self) -> None:
        super().__init__(1.0)

    def __repr__(self) -> str:
        return "Shannon()"


@listed
class Gini(Tsallis):
    r"""Gini's index: sparsemax and its loss.

    .. math:: \Omega(p) = \tfrac{1}{2} (\|p\|^2 - 1)

    The margin is 1, as for a support vector machine, but the loss is smooth; with two classes it is
    the modified Huber loss. It is :class:`Tsallis` at α = 2.

    Example:
        >>> fy.Gini().loss(torch.tensor([0.0, 0.0]), torch.tensor(1))
        tensor(0.2500)

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016.
    """

    def __init__(self) -> None:
        super().__init__(2.0)

    def __repr__(self) -> str:
        return "Gini()"


@listed
class Zero(Tsallis):
    r"""No regularization: argmax (ties share), the maximum, and the perceptron loss.

    .. math:: \Omega(p) = 0, \qquad L(\theta; e_k) = \max_i \theta_i - \theta_k

    The margin is 0. With a ``cost`` the loss is the multi-class hinge loss. It is the limit of
    :class:`Tsallis` as α grows.

    Example:
        >>> fy.Zero().loss(torch.tensor([2.0, 0.5]), torch.tensor(1))
        tensor(1.5000)
    """

    def __init__(self) -> None:
        super().__init__(math.inf)

    def __repr__(self) -> str:
        return "Zero()"


@listed
class Renyi(MapRegularizer):
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

    map = MAPS["renyimax"]
    beta: float

    def __init__(self, beta: float = 0.5) -> None:
        super().__init__(beta)

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

    def _divergence(self, scores: Tensor, p: Tensor, target: Tensor) -> Tensor:
        # 1/(1 - beta) enlarges what rounding took from the sum of p.
        return super()._divergence(scores, _normalised(p), _normalised(target))


def _normalised(p: Tensor) -> Tensor:
    p = widen(p)
    total = p.sum(-1, keepdim=True)
    return p / torch.where(total == 0, 1.0, total)
