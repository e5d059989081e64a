"""What the registered attention ops take: (batch, heads, length, width), float32 or float64."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_wide


def check_operands(name: str, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Check dtypes, devices and shapes of queries, keys and values."""
    for label, x in (("query", query), ("key", key), ("value", value)):
        check_wide(name, **{label: x})
        if x.dim() != 4 or x.dtype != query.dtype or x.device != query.device:
            raise FenchelError(
                f"{name}: expected `{label}` of shape (batch, heads, length, width), of the dtype "
                f"and on the device of `query`, but got {tuple(x.shape)}, {x.dtype} on {x.device}."
            )
        if x.layout != torch.strided:
            raise FenchelError(f"{name}: expected dense `{label}`, but got layout {x.layout}.")
    batch, heads, _, width = query.shape
    kv_heads, length = key.shape[1], key.shape[2]
    fits = (
        key.shape[0] == value.shape[0] == batch
        and value.shape[1] == kv_heads > 0
        and heads % kv_heads == 0
        and key.shape[3] == width > 0
        and value.shape[2] == length > 0
    )
    if not fits:
        raise FenchelError(
            f"{name}: expected `query` (batch, heads, L, d), `key` (batch, kv_heads, S, d) and "
            f"`value` (batch, kv_heads, S, d_v), heads a multiple of kv_heads, d and S at least 1, "
            f"but got {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )


def check_alpha(name: str, alpha: Tensor, query: Tensor) -> None:
    """Check that there is one alpha, or one per head of each batch entry."""
    fits = alpha.numel() == 1 or tuple(alpha.shape) == tuple(query.shape[:2])
    if not alpha.is_floating_point() or not fits or alpha.device != query.device:
        raise FenchelError(
            f"{name}: expected `alpha` to be floating, of shape (1,) or {tuple(query.shape[:2])}, "
            f"on {query.device}, but got {alpha.dtype} of shape {tuple(alpha.shape)} on "
            f"{alpha.device}."
        )


def expand_mask(name: str, mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """A boolean mask, or one of the dtype of the queries, as (batch, heads, L, S)."""
    if mask is None:
        return None
    if mask.dtype not in (torch.bool, query.dtype) or mask.device != query.device:
        raise FenchelError(
            f"{name}: expected `mask` to be boolean or {query.dtype} on {query.device}, but got "
            f"{mask.dtype} on {mask.device}."
        )
    shape = (*query.shape[:3], key.shape[2])
    try:
        return mask.expand(shape)
    except RuntimeError:
        raise FenchelError(
            f"{name}: expected `mask` broadcastable to {shape}, but got {tuple(mask.shape)}."
        ) from None
