from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module

from fenchel._checks import FenchelError, check_dim, check_ignore_index, check_number
from fenchel.losses import check_reduction, check_smoothing


class LossArguments(Module):
    """What all losses take from ``torch.nn.CrossEntropyLoss``, and a class axis and costs.

    ``weight`` and a tensor ``cost`` are buffers: they move with the module.
    """

    weight: Tensor | None
    cost: Any

    def _take_arguments(
        self,
        weight: Tensor | None,
        ignore_index: int,
        label_smoothing: float,
        reduction: str,
        dim: int | None,
        cost: float | Tensor | None,
    ) -> None:
        name = f"nn.{type(self).__name__}"
        if weight is not None and not isinstance(weight, Tensor):
            raise FenchelError(
                f"{name}: expected `weight` to be a torch.Tensor, but got {type(weight).__name__}."
            )
        self.register_buffer("weight", weight)
        self.ignore_index = int(check_ignore_index(name, ignore_index))
        self.label_smoothing = check_smoothing(name, label_smoothing)
        check_reduction(name, reduction)
        self.reduction = reduction
        self.dim = dim if dim is None else check_dim(name, dim)
        if cost is None or isinstance(cost, Tensor):
            self.register_buffer("cost", cost)
        else:
            self.cost = check_number(name, "cost", cost, 0.0, "", "a number or a torch.Tensor")

    def _arguments(self) -> dict[str, Any]:
        return {
            "weight": self.weight,
            "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing,
            "reduction": self.reduction,
            "dim": self.dim,
            "cost": self.cost,
        }

    def _arguments_repr(self) -> str:
        """The arguments that differ from their defaults, tensors by their shapes."""
        defaults = {
            "weight": None,
            "ignore_index": -100,
            "label_smoothing": 0.0,
            "reduction": "mean",
            "dim": None,
            "cost": None,
        }
        parts = []
        for key, value in self._arguments().items():
            if isinstance(value, Tensor):
                parts.append(f"{key}=<{tuple(value.shape)}>")
            elif value != defaults[key]:
                parts.append(f"{key}={value!r}")
        return ", ".join(parts)
