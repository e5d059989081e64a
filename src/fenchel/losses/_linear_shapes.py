"""Checks of an output layer: hidden states, weight, bias."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError


def check_layer(name: str, hidden: Any, weight: Any, bias: Any) -> Tensor:
    """Check the tensors of a layer; ``hidden`` comes back as (rows, d)."""
    for label, value in (("hidden", hidden), ("weight", weight)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise FenchelError(
                f"{name}: expected `{label}` to be a floating tensor, but got {got}."
            )
    matching = weight.dim() == 2 and hidden.dim() > 0 and hidden.shape[-1] == weight.shape[1] > 0
    if not matching:
        raise FenchelError(
            f"{name}: expected `hidden` of shape (…, d) and `weight` of shape (V, d), d at least "
            f"1, but got {tuple(hidden.shape)} and {tuple(weight.shape)}."
        )
    if weight.shape[0] == 0:
        raise FenchelError(f"{name}: expected at least one class, but `weight` has no rows.")
    cast = torch.is_autocast_enabled(hidden.device.type)
    cast = cast and torch.float64 not in (hidden.dtype, weight.dtype)
    same = hidden.dtype == weight.dtype or cast
    if not same or hidden.device != weight.device:
        raise FenchelError(
            f"{name}: expected `hidden` and `weight` of one dtype on one device, but got "
            f"{hidden.dtype} on {hidden.device} and {weight.dtype} on {weight.device}."
        )
    if bias is not None and (
        not isinstance(bias, Tensor) or bias.shape != weight.shape[:1] or bias.dtype != weight.dtype
    ):
        is_tensor = isinstance(bias, Tensor)
        said = f"{tuple(bias.shape)} and {bias.dtype}" if is_tensor else type(bias).__name__
        raise FenchelError(
            f"{name}: expected `bias` of shape ({weight.shape[0]},) and dtype {weight.dtype}, but "
            f"got {said}."
        )
    return hidden.reshape(-1, hidden.shape[-1])
