from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from fenchel._checks import FenchelError, check_dim, check_number
from fenchel.maps import entmax
from fenchel.nn._arguments import written


class Entmax(Module):
    r""":func:`fenchel.entmax` as a module, with an :math:`\alpha` that is fixed or learned.

    A learned :math:`\alpha` stays between two bounds,

    .. math:: \alpha = \mathit{low} + (\mathit{high} - \mathit{low}) \, \sigma(a)

    where :math:`a` is the module's one parameter, ``alpha_logit``. By default that spans softmax
    to sparsemax. A fixed :math:`\alpha` is no parameter and not in the ``state_dict``.

    Args:
        alpha: a number in [1, ∞]; with ``learnable``, where learning starts, strictly between
            ``low`` and ``high``.
        learnable: whether alpha is learned.
        shape: shape of a learned alpha, broadcast against the scores with size 1 along ``dim``:
            ``(8, 1, 1)`` is one for each of 8 heads in scores of shape (batch, 8, queries, keys).
        dim: axis to normalise.
        low: lower bound of a learned alpha, at least 1. With ``learnable=False`` the shape and
            the bounds are not used.
        high: upper bound of a learned alpha, finite.

    Example:
        >>> from fenchel.nn import Entmax
        >>> heads = Entmax(alpha=1.25, learnable=True, shape=(2, 1, 1))
        >>> heads.alpha.flatten()
        tensor([1.2500, 1.2500], grad_fn=<...>)
        >>> heads(torch.zeros(5, 2, 3, 4)).shape
        torch.Size([5, 2, 3, 4])

    References:
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019.
    """

    def __init__(
        self,
        alpha: float = 1.5,
        learnable: bool = False,
        shape: Sequence[int] = (),
        *,
        dim: int = -1,
        low: float = 1.0,
        high: float = 2.0,
    ) -> None:
        super().__init__()
        meaning = "(1 is softmax, 2 is sparsemax)"
        self.initial_alpha = check_number("nn.Entmax", "alpha", alpha, 1.0, meaning)
        self.dim = check_dim("nn.Entmax", dim)
        if not isinstance(learnable, bool):
            raise FenchelError(
                f"nn.Entmax: expected `learnable` to be a bool, but got {learnable!r}."
            )
        self.learnable = learnable
        self.shape = _check_shape(shape)
        self.low = check_number("nn.Entmax", "low", low, 1.0, meaning)
        self.high = check_number("nn.Entmax", "high", high, 1.0, meaning)
        if not self.low < self.high < math.inf:
            raise FenchelError(
                f"nn.Entmax: expected `low` < `high` < inf, but got low={low:g}, high={high:g}."
            )
        if learnable:
            if not self.low < self.initial_alpha < self.high:
                raise FenchelError(
                    f"nn.Entmax: a learnable `alpha` must start strictly between low={self.low:g} "
                    f"and high={self.high:g}; got {alpha:g}."
                )
            self.alpha_logit = Parameter(torch.empty(self.shape))
            self.reset_parameters()
        else:
            self.register_parameter("alpha_logit", None)

    def reset_parameters(self) -> None:
        """Put a learned alpha back to where it started."""
        if self.alpha_logit is not None:
            share = (self.initial_alpha - self.low) / (self.high - self.low)
            torch.nn.init.constant_(self.alpha_logit, math.log(share / (1 - share)))

    @property
    def alpha(self) -> float | Tensor:
        """The present alpha: a number if fixed, else a tensor of the given shape with gradient."""
        if self.alpha_logit is None:
            return self.initial_alpha
        return self.low + (self.high - self.low) * self.alpha_logit.sigmoid()

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return entmax(scores, self.alpha, self.dim, mask=mask)

    def extra_repr(self) -> str:
        text = f"alpha={written(self.initial_alpha)}, dim={self.dim}"
        if self.learnable:
            text += f", learnable=True, shape={self.shape}, low={self.low!r}, high={self.high!r}"
        return text


def _check_shape(shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence) else ("",)
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
        raise FenchelError(
            "nn.Entmax: expected `shape` to be a tuple of positive sizes such as (8, 1, 1), but "
            f"got {shape!r}."
        )
    return sizes
