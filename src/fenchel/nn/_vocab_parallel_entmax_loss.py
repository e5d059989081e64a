from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter, init

from fenchel._checks import FenchelError, check_ignore_index
from fenchel.losses import (
    vocab_parallel_entmax_loss,
)
from fenchel.losses.arguments import check_reduction, check_smoothing
from fenchel.nn._alpha import WithAlpha


class VocabParallelEntmaxLoss(WithAlpha):
    r""":func:`fenchel.vocab_parallel_entmax_loss` as a module: this rank's part of an output layer.

    The classes are dealt out as ``torch.chunk`` and DTensor do: ``ceil(V / ranks)`` to each, the
    rest to the last. With the same seed on all ranks, the parts are those of one layer, and the
    generators of all ranks are alike afterwards.

    Args:
        in_features: width d of the hidden states.
        num_classes: number of all classes V.
        alpha: a number in (0, ∞]; with ``learnable``, where learning starts, between 1 and 2.
        learnable: whether alpha is learned; it stays the same on all ranks.
        bias: whether there is a bias.
        group: the process group that shares the classes; by default all processes.
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        device: of the parameters.
        dtype: of the parameters.

    Example:
        >>> import os, tempfile, torch.distributed as dist
        >>> store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
        >>> dist.init_process_group("gloo", rank=0, world_size=1, store=store)
        >>> layer = fy.nn.VocabParallelEntmaxLoss(8, 100)
        >>> layer(torch.randn(4, 8), torch.tensor([3, 14, 15, 92])).shape
        torch.Size([])
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        alpha: float = 1.5,
        learnable: bool = False,
        *,
        bias: bool = True,
        group: Any = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(alpha, learnable, (), 1.0, 2.0)
        name = "nn.VocabParallelEntmaxLoss"
        if not (dist.is_available() and dist.is_initialized()):
            raise FenchelError(
                f"{name}: expected a process group; call torch.distributed.init_process_group "
                "first, or use `fy.nn.LinearEntmaxLoss` in a single process."
            )
        self.in_features, self.num_classes, self.group = in_features, num_classes, group
        each = -(-num_classes // dist.get_world_size(group))
        self.vocab_start = min(dist.get_rank(group) * each, num_classes)
        own = min(each, num_classes - self.vocab_start)
        self.weight = Parameter(torch.empty(own, in_features, device=device, dtype=dtype))
        if bias:
            self.bias: Parameter | None = Parameter(torch.empty(own, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.ignore_index = int(check_ignore_index(name, ignore_index))
        self.label_smoothing = check_smoothing(name, label_smoothing)
        check_reduction(name, reduction)
        self.reduction = reduction
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As ``torch.nn.Linear`` of all classes would, were it dealt out."""
        super().reset_parameters()
        if not hasattr(self, "reduction"):  # alpha comes first
            return
        bound = 1 / math.sqrt(max(1, self.in_features))
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                self._draw(parameter, bound)

    @torch.no_grad()
    def _draw(self, parameter: Tensor, bound: float) -> None:
        """Numbers for all classes, of which this rank keeps its own."""
        each = -(-self.num_classes // dist.get_world_size(self.group))
        for first in range(0, self.num_classes, each):
            shape = (min(each, self.num_classes - first), *parameter.shape[1:])
            if first == self.vocab_start and parameter.shape[0] > 0:
                init.uniform_(parameter, -bound, bound)
            else:
                init.uniform_(parameter.new_empty(shape), -bound, bound)

    def forward(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The loss of hidden states (…, d) against class indices (…), both alike on all ranks."""
        return vocab_parallel_entmax_loss(
            hidden,
            self.weight,
            target,
            self.alpha,
            bias=self.bias,
            group=self.group,
            vocab_start=self.vocab_start,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        alpha, learned = self._alpha_repr()
        learned = ", learnable=True" if learned else ""
        return f"{self.in_features}, {self.num_classes}, {alpha}{learned}"
