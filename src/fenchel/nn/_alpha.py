from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from fenchel._checks import FenchelError
from fenchel.maps.alpha import ALPHA, Bounds
from fenchel.nn._arguments import written


class WithAlpha(Module):
    r"""What modules with an :math:`\alpha` share, fixed or learned between two bounds.

    A learned :math:`\alpha = \mathit{low} + (\mathit{high} - \mathit{low}) \, \sigma(a)`, where
    :math:`a` is the parameter ``alpha_logit``; a fixed one is not in the ``state_dict``.
    """

    def __init__(
        self,
        alpha: float,
        learnable: bool,
        shape: Sequence[int],
        low: float,
        high: float,
    ) -> None:
        super().__init__()
        name = f"nn.{type(self).__name__}"
        self.initial_alpha = ALPHA.number(name, alpha)
        if not isinstance(learnable, bool):
            raise FenchelError(f"{name}: expected `learnable` to be a bool, but got {learnable!r}.")
        self.learnable = learnable
        self.shape = _check_shape(name, shape)
        self.bounds = Bounds.check(name, low, high)
        if learnable:
            self._start = self.bounds.logit(name, self.initial_alpha)
            self.alpha_logit = Parameter(torch.empty(self.shape))
            self.reset_parameters()
        else:
            self.register_parameter("alpha_logit", None)

    def reset_parameters(self) -> None:
        """Put a learned alpha back to where it started."""
        if self.alpha_logit is not None:
            torch.nn.init.constant_(self.alpha_logit, self._start)

    @property
    def alpha(self) -> float | Tensor:
        """The present alpha: a number if fixed, else a tensor of the given shape with gradient."""
        if self.alpha_logit is None:
            return self.initial_alpha
        return self.bounds.alpha(self.alpha_logit)

    def _alpha_repr(self) -> tuple[str, str]:
        """alpha's arguments in the constructor call: before the others, and after them."""
        low, high = self.bounds.low, self.bounds.high
        learned = f", learnable=True, shape={self.shape}, low={low!r}, high={high!r}"
        return f"alpha={written(self.initial_alpha)}", learned if self.learnable else ""


def _check_shape(name: str, shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence) else ("",)
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
        raise FenchelError(
            f"{name}: expected `shape` to be a tuple of positive sizes such as (8, 1, 1), but "
            f"got {shape!r}."
        )
    return sizes
