from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import check_number, check_parameter
from fenchel.maps import normmax
from fenchel.regularizers._base import Regularizer
from fenchel.regularizers._norm_curve import log_norm, log_norm_slope, norm_gradient


class Norm(Regularizer):
    r"""The norm entropies: normmax and its losses.

    .. math:: \Omega(p) = \|p\|_q - 1

    The map is :func:`fenchel.normmax`; the margin is 1 for every q > 1. At q = ∞ the entropy is the
    Berger-Parker index, 1 minus the largest probability; at q = 1 it vanishes on the simplex.

    Args:
        q: a number in [1, ∞], or a tensor that broadcasts against the scores with size 1 along
            ``dim``, learnable. A tensor's values are not checked.

    Example:
        >>> omega = fy.Norm(2)
        >>> omega.predict(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3110, 0.6890])
        >>> omega.margin
        1.0

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """

    def __init__(self, q: float | Tensor = 2.0) -> None:
        self.q = q if isinstance(q, Tensor) else check_number("Norm", "q", q, 1.0, _MEANING)

    @property
    def margin(self) -> float:
        """1; 0 at q = 1, where there is no entropy."""
        if isinstance(self.q, Tensor):
            return 1.0 if bool((self.q > 1).any()) else 0.0
        return 1.0 if self.q > 1 else 0.0

    @property
    def _parameter(self) -> Tensor | None:
        return self.q if isinstance(self.q, Tensor) else None

    def _aligned(self, name: str, scores: Tensor, dim: int) -> Regularizer:
        if not isinstance(self.q, Tensor):
            return self
        q = check_parameter(name, "q", self.q, scores, dim, 1.0, _MEANING)
        assert isinstance(q, Tensor)
        return Norm(q.to(scores.device).movedim(dim, -1))

    def omega_rows(self, p: Tensor) -> Tensor:
        return torch.expm1(log_norm(p, self.q)).squeeze(-1)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return norm_gradient(p, self.q)

    def slope_rows(self, p: Tensor) -> Tensor:
        return log_norm(p, self.q).exp() * log_norm_slope(p, self.q)

    def predict_rows(self, scores: Tensor) -> Tensor:
        return normmax(scores, alpha=self.q)

    def __repr__(self) -> str:
        q = self.q
        return f"Norm(q={f'<{tuple(q.shape)}>' if isinstance(q, Tensor) else f'{q:g}'})"


_MEANING = "(1 is no entropy, inf is Berger-Parker's)"
