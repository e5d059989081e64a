"""What a model can tell about itself while it trains: learned α, and support sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fenchel.training.distributed import whole


@torch.no_grad()
def observe(model: nn.Module) -> dict[str, Any]:
    """Ask a model for what it reports, if it does.

    Returns:
        ``"alphas"``, a list of numbers by name, if ``model.alphas()`` exists and is not empty;
        ``"support_size"``, if ``model.support_size()`` exists and knows: the mean number of outputs
        with nonzero probability.
    """
    seen: dict[str, Any] = {}
    alphas = getattr(model, "alphas", None)
    if callable(alphas):
        values = _named(alphas())
        if values:
            seen["alphas"] = values
    support = getattr(model, "support_size", None)
    size = support() if callable(support) else None
    if size is not None and math.isfinite(size):
        seen["support_size"] = float(size)
    return seen


def _named(alphas: Any) -> dict[str, list[float]]:
    if not isinstance(alphas, Mapping):
        alphas = {"alpha": alphas}
    numbers = {str(name): _numbers(value) for name, value in alphas.items()}
    return {name: values for name, values in numbers.items() if values}


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Tensor):
        return [float(x) for x in whole(value.detach()).flatten().tolist()]
    if isinstance(value, Iterable):
        return [x for item in value for x in _numbers(item)]
    return [] if value is None else [float(value)]
