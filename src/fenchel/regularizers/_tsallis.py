from __future__ import annotations

import math

from torch import Tensor

from fenchel._checks import check_alpha, check_alphas
from fenchel._targets import is_index
from fenchel.maps import entmax
from fenchel.regularizers._base import Regularizer
from fenchel.regularizers._tsallis_loss import fused_loss
from fenchel.regularizers.tsallis_curve import divergence, log_a, omega, slope


class Tsallis(Regularizer):
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

    def __init__(self, alpha: float | Tensor = 1.5) -> None:
        self.alpha = alpha
        if not isinstance(alpha, Tensor):
            self.alpha = check_alpha("Tsallis", alpha, _MEANING)

    @property
    def margin(self) -> float:
        """1/(alpha - 1), and ∞ for alpha at most 1. A tensor's is that of its smallest alpha."""
        alpha = float(self.alpha.min()) if isinstance(self.alpha, Tensor) else self.alpha
        return math.inf if alpha <= 1 else 1 / (alpha - 1)

    @property
    def _parameter(self) -> Tensor | None:
        return self.alpha if isinstance(self.alpha, Tensor) else None

    def _aligned(self, name: str, scores: Tensor, dim: int) -> Regularizer:
        if not isinstance(self.alpha, Tensor):
            return self
        alpha = check_alphas(name, self.alpha, scores, dim, _MEANING)
        assert isinstance(alpha, Tensor)
        return Tsallis(alpha.to(scores.device).movedim(dim, -1))

    def omega_rows(self, p: Tensor) -> Tensor:
        return omega(p, self.alpha)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return log_a(p, self.alpha)

    def slope_rows(self, p: Tensor) -> Tensor:
        return slope(p, self.alpha)

    def predict_rows(self, scores: Tensor) -> Tensor:
        return entmax(scores, alpha=self.alpha)

    def _divergence(self, scores: Tensor, p: Tensor, target: Tensor) -> Tensor:
        return divergence(target, p, self.alpha, scores)

    def _bregman(self, y: Tensor, p: Tensor) -> Tensor:
        return divergence(y, p, self.alpha)

    def loss_rows(self, scores: Tensor, target: Tensor) -> Tensor:
        fused = fused_loss(scores, target, self.alpha) if is_index(target) else None
        return super().loss_rows(scores, target) if fused is None else fused

    def __repr__(self) -> str:
        alpha = self.alpha
        written = f"{alpha:g}" if not isinstance(alpha, Tensor) else f"<{tuple(alpha.shape)}>"
        return f"Tsallis(alpha={written})"


_MEANING = "(1 is Shannon's entropy, 2 is Gini's)"
