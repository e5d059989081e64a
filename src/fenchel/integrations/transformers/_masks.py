"""Masks as models make them, brought to the one form that attention takes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError


def usable_mask(name: str, mask: Any, keys: int) -> Tensor | None:
    """A mask (batch, heads, queries, keys), boolean or added, with −inf for "never".

    Models write "never" as the least number of a dtype. A row of such numbers would be uniform
    over what it may not see; a row of −inf is zeros.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() != 4:
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise FenchelError(
            f"{name}: expected an attention mask of shape (batch, heads, queries, keys), but got "
            f"{got}."
        )
    mask = mask[..., :keys]
    if not mask.is_floating_point():
        return mask
    # Half of it: the least bfloat16 in float32 is a little above the least float32.
    return mask.masked_fill(mask <= torch.finfo(mask.dtype).min / 2, -math.inf)


def with_position_bias(
    bias: Tensor, mask: Tensor | None, is_causal: bool, queries: int, keys: int
) -> Tensor:
    """One mask to add, out of a bias on the scores and whatever else masks them."""
    bias = bias[..., :keys]
    if is_causal:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=bias.device).tril()
    if mask is None:
        return bias
    return torch.where(mask, bias, -math.inf) if mask.dtype == torch.bool else bias + mask
