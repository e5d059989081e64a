"""Shapes and arguments of ``F.scaled_dot_product_attention``, checked and brought to one form."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_bool, check_number
from fenchel._dtypes import full_dtype
from fenchel.maps.alpha import ALPHA


@dataclass(frozen=True)
class Attention:
    """Everything in four dimensions: (batch, heads, length, width)."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None  # expanded to (batch, heads, queries, keys)
    alpha: Tensor  # (1,) or (batch, heads)
    scale: float
    shape: tuple[int, ...]  # of the output
    dtype: torch.dtype


def arrange(
    name: str,
    query: Any,
    key: Any,
    value: Any,
    alpha: Any,
    attn_mask: Any,
    dropout_p: Any,
    is_causal: Any,
    scale: Any,
    enable_gqa: Any,
) -> Attention:
    """Check the arguments and bring them to four dimensions."""
    query, key, value = (_autocast(x) for x in (query, key, value))
    _check_tensors(name, query, key, value)
    is_causal = _check_flag(name, "is_causal", is_causal)
    enable_gqa = _check_flag(name, "enable_gqa", enable_gqa)
    if not 0 <= check_number(name, "dropout_p", dropout_p, 0.0, "(and at most 1)") <= 1:
        raise FenchelError(f"{name}: `dropout_p` must be in [0, 1]; got {dropout_p!r}.")
    if is_causal and attn_mask is not None:
        raise FenchelError(
            f"{name}: expected `attn_mask` or `is_causal`, but got both; put the triangle into the "
            "mask."
        )
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    scale = check_number(name, "scale", scale, -math.inf, "(and not NaN)")
    query, key, value = _one_lead(name, query, key, value, enable_gqa)
    shape = (*query.shape[:-1], value.shape[-1])
    query, key, value = (_at_least_4d(x) for x in (query, key, value))
    lead = _lead(name, query, key, value, enable_gqa)
    kv_lead = (*lead[:-1], key.shape[-3])
    alpha = _check_alpha(name, alpha, query, lead)
    mask = _check_mask(name, attn_mask, query, (*lead, query.shape[-2], key.shape[-2]))
    dtype = query.dtype
    wide = full_dtype(dtype)
    return Attention(
        _flat(query, lead, wide),
        _flat(key, kv_lead, wide),
        _flat(value, kv_lead, wide),
        None if mask is None else mask.to(wide) if mask.dtype != torch.bool else mask,
        alpha,
        scale,
        shape,
        dtype,
    )


def _autocast(x: Any) -> Any:
    """What torch's own attention would work on under autocast."""
    if not isinstance(x, Tensor) or x.is_meta or not x.is_floating_point():
        return x
    device = x.device.type
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return x
    return x.to(torch.get_autocast_dtype(device))


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """The inputs are cast already; what follows is float32, as on the core."""
    if x.is_meta or not torch.is_autocast_enabled(x.device.type):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


def _check_tensors(name: str, query: Any, key: Any, value: Any) -> None:
    for label, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise FenchelError(
                f"{name}: expected `{label}` to be a floating tensor, but got {got}."
            )
        if x.dim() < 2:
            raise FenchelError(
                f"{name}: expected `{label}` of shape (…, length, width), but got {tuple(x.shape)}."
            )
        if x.dtype != query.dtype or x.device != query.device:
            raise FenchelError(
                f"{name}: expected one dtype and device, but `query` is {query.dtype} on "
                f"{query.device} and `{label}` {x.dtype} on {x.device}."
            )
    if query.shape[-1] != key.shape[-1] or query.shape[-1] == 0:
        raise FenchelError(
            f"{name}: expected `query` and `key` of one width of at least 1, but got "
            f"{query.shape[-1]} and {key.shape[-1]}."
        )
    if key.shape[-2] != value.shape[-2] or key.shape[-2] == 0:
        raise FenchelError(
            f"{name}: expected `key` and `value` of one length of at least 1, but got "
            f"{key.shape[-2]} and {value.shape[-2]}."
        )


def _check_flag(name: str, label: str, flag: Any) -> bool:
    """A bool, or a tensor of one: torch.jit.trace makes comparisons of sizes into such."""
    if isinstance(flag, Tensor) and flag.dtype == torch.bool and flag.numel() == 1:
        return bool(flag)
    return check_bool(name, label, flag)


def _one_lead(
    name: str, query: Tensor, key: Tensor, value: Tensor, gqa: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with one shape in front of (length, width), as torch broadcasts.

    With ``gqa`` heads differ, and only what is in front of them broadcasts.
    """
    tensors = (query, key, value)
    if query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return tensors
    axes = 3 if gqa and min(x.dim() for x in tensors) > 2 else 2
    leads = [tuple(x.shape[:-axes]) for x in tensors]
    if all(lead == leads[0] for lead in leads):
        return tensors
    try:
        shape = torch.broadcast_shapes(*leads)
    except RuntimeError:
        fewer = key.dim() > 2 and query.dim() > 2 and key.shape[-3] < query.shape[-3]
        remedy = "; with fewer heads of keys use enable_gqa=True" if fewer and not gqa else ""
        raise FenchelError(
            f"{name}: expected shapes in front of (length, width) that broadcast, but got "
            f"{[tuple(x.shape[:-2]) for x in tensors]}{remedy}."
        ) from None
    query, key, value = (x.expand(*shape, *x.shape[-axes:]) for x in tensors)
    return query, key, value


def _at_least_4d(x: Tensor) -> Tensor:
    return x.reshape((1,) * (4 - x.dim()) + tuple(x.shape)) if x.dim() < 4 else x


def _lead(name: str, query: Tensor, key: Tensor, value: Tensor, gqa: bool) -> tuple[int, ...]:
    """The dimensions in front of (length, width), heads last, of the output."""
    heads, kv_heads = query.shape[-3], key.shape[-3]
    if gqa and (value.shape[-3] != kv_heads or kv_heads == 0 or heads % kv_heads):
        raise FenchelError(
            f"{name}: expected heads of `query` ({heads}) that are a multiple of those of "
            f"`key` ({kv_heads}) and `value` ({value.shape[-3]})."
        )
    return tuple(query.shape[:-2])


def _flat(x: Tensor, lead: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """(batch, heads, length, width) in the dtype that is computed in."""
    if x.dim() != 4:
        x = x.reshape(math.prod(lead[:-1]), lead[-1], *x.shape[-2:])
    return x if x.dtype == dtype else x.to(dtype)


def _check_alpha(name: str, alpha: Any, query: Tensor, lead: tuple[int, ...]) -> Tensor:
    if not isinstance(alpha, Tensor):
        number = ALPHA.number(name, alpha, "a number or a torch.Tensor")
        return torch.full((1,), number, dtype=torch.float64, device=query.device)
    if not alpha.is_floating_point():
        raise FenchelError(f"{name}: expected `alpha` of a floating dtype, but got {alpha.dtype}.")
    if alpha.numel() == 1:
        return alpha.reshape(1).to(query.device)
    heads = alpha[:, None, None] if alpha.dim() == 1 else alpha
    try:
        each = heads.to(query.device).expand(*lead, 1, 1)
    except RuntimeError:
        raise FenchelError(
            f"{name}: expected `alpha` of one number per head, shape ({lead[-1]},) or "
            f"broadcastable to {(*lead, 1, 1)}, but got {tuple(alpha.shape)}."
        ) from None
    return each.reshape(math.prod(lead[:-1]), lead[-1])


def _check_mask(name: str, mask: Any, query: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise FenchelError(
            f"{name}: expected `attn_mask` to be a boolean (True = look) or floating (added) "
            f"tensor, but got {got}."
        )
    if mask.device != query.device:
        raise FenchelError(
            f"{name}: expected `attn_mask` on {query.device}, but it is on {mask.device}."
        )
    try:
        return mask.expand(shape).reshape(math.prod(shape[:-3]), *shape[-3:])
    except RuntimeError:
        raise FenchelError(
            f"{name}: expected `attn_mask` broadcastable to {shape}, but got {tuple(mask.shape)}."
        ) from None
