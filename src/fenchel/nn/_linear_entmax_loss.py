from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter, init

from fenchel._checks import FenchelError, check_ignore_index
from fenchel.losses import (
    linear_entmax_loss,
    linear_sparse_entmax,
)
from fenchel.losses.arguments import check_reduction, check_smoothing
from fenchel.maps import SparseRows
from fenchel.nn._alpha import WithAlpha


class LinearEntmaxLoss(WithAlpha):
    r""":func:`fenchel.linear_entmax_loss` as a module: an output layer that knows its loss.

    In training ``layer(hidden, target)`` is the loss; in decoding ``layer.predict(hidden)`` gives
    the words with probability. The keys of the ``state_dict`` are those of ``torch.nn.Linear``.

    Args:
        in_features: width d of the hidden states.
        num_classes: number of classes V.
        alpha: a number in (0, ∞]; with ``learnable``, where learning starts, between 1 and 2.
        learnable: whether alpha is learned.
        bias: whether there is a bias.
        weight: a ``Parameter`` of shape (V, d) to share, such as an embedding's; by default the
            layer has its own.
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the classes.
        class_weight: one number per class, shape (V); a buffer.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        sparse_grad: whether the gradient of the weight is a sparse tensor.
        device: of the parameters.
        dtype: of the parameters.

    Example:
        >>> layer = fy.nn.LinearEntmaxLoss(8, 100)
        >>> hidden = torch.randn(4, 8)
        >>> loss = layer(hidden, torch.tensor([3, 14, 15, 92]))
        >>> layer.predict(hidden).sizes.shape
        torch.Size([4])
    """

    class_weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        alpha: float = 1.5,
        learnable: bool = False,
        *,
        bias: bool = True,
        weight: Parameter | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        reduction: str = "mean",
        sparse_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(alpha, learnable, (), 1.0, 2.0)
        name = "nn.LinearEntmaxLoss"
        shape = (num_classes, in_features)
        if weight is not None and (not isinstance(weight, Parameter) or weight.shape != shape):
            raise FenchelError(
                f"{name}: expected `weight` to be a Parameter of shape {shape}, but got "
                f"{tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__}."
            )
        self.in_features, self.num_classes = in_features, num_classes
        self.tied = weight is not None
        if weight is None:
            weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.weight = weight
        if bias:
            like = self.weight
            zeros = torch.empty(num_classes, device=like.device, dtype=like.dtype)
            self.bias: Parameter | None = Parameter(zeros)
        else:
            self.register_parameter("bias", None)
        self.ignore_index = int(check_ignore_index(name, ignore_index))
        self.label_smoothing = check_smoothing(name, label_smoothing)
        self.register_buffer("class_weight", class_weight)
        check_reduction(name, reduction)
        self.reduction = reduction
        self.sparse_grad = sparse_grad
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As ``torch.nn.Linear``; a shared weight is left alone."""
        super().reset_parameters()
        if not hasattr(self, "in_features"):  # alpha comes first
            return
        if not self.tied:
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(max(1, self.in_features))
            init.uniform_(self.bias, -bound, bound)

    def forward(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The loss of hidden states (…, d) against class indices (…)."""
        return linear_entmax_loss(
            hidden,
            self.weight,
            target,
            self.alpha,
            bias=self.bias,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            class_weight=self.class_weight,
            reduction=self.reduction,
            sparse_grad=self.sparse_grad,
        )

    def predict(self, hidden: Tensor) -> SparseRows:
        """The classes that have probability, and how much, without gradient."""
        alpha = self.alpha
        alpha = alpha.detach() if isinstance(alpha, Tensor) else alpha
        return linear_sparse_entmax(hidden, self.weight, alpha, bias=self.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        """The scores of all classes, (…, V), with gradient."""
        return F.linear(hidden, self.weight, self.bias)

    def extra_repr(self) -> str:
        alpha, learned = self._alpha_repr()
        tied = ", tied" if self.tied else ""
        learned = ", learnable=True" if learned else ""
        return f"{self.in_features}, {self.num_classes}, {alpha}{learned}{tied}"
