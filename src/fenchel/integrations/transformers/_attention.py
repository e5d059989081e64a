"""Entmax attention as a function of the registry of ``transformers``.

Masks, as models make them, are brought to the one form that attention takes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from fenchel._checks import FenchelError
from fenchel.attention import entmax_attention
from fenchel.attention.dense import attention_scores, weighted_values
from fenchel.attention.shapes import Attention, arrange, without_autocast
from fenchel.integrations.transformers._library import weights_are_recorded
from fenchel.maps import entmax


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


# What layers hand down that does not change what attention computes.
_NO_EFFECT = {
    "cache_position",
    "deterministic",
    "labels",
    "num_items_in_batch",
    "output_hidden_states",
    "output_router_logits",
    "past_key_values",
    "position_embeddings",
    "position_ids",
    "return_dict",
    "seq_idx",
    "target_dtype",
    "use_cache",
}
# What would, and cannot be had here. The values say what to do instead.
_REFUSED = {
    "block_indices": "use another attn_implementation for this model",
    "cache": "continuous batching has a paged cache; use `generate`",
    "cu_seq_lens_k": "pack with `position_ids` alone, of which the model makes a mask",
    "cu_seq_lens_q": "pack with `position_ids` alone, of which the model makes a mask",
    "head_mask": "prune heads instead",
    "indices": "use another attn_implementation for this model",
    "layer_head_mask": "prune heads instead",
    "max_length_k": "pack with `position_ids` alone, of which the model makes a mask",
    "max_length_q": "pack with `position_ids` alone, of which the model makes a mask",
}
_warned: set[str] = set()

Attend = Callable[..., tuple[Tensor, Tensor | None]]


def attention_function(name: str, alpha_of: Callable[[Module], float | Tensor]) -> Attend:
    """A function for the registry, under ``name``, with alpha by module."""

    def attend(
        module: Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | Tensor | None = None,
        dropout: float = 0.0,
        is_causal: bool | None = None,
        position_bias: Tensor | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        sliding_window: int | None = None,
        output_attentions: bool | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None]:
        _check_others(name, others)
        queries, keys = query.shape[2], key.shape[2]
        mask = usable_mask(name, attention_mask, keys)
        if mask is None and isinstance(sliding_window, int) and keys > sliding_window:
            raise FenchelError(
                f"{name}: expected a mask that holds the sliding window of {sliding_window} over "
                f"{keys} keys, but got none."
            )
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        causal = bool(causal and mask is None and queries > 1)
        if position_bias is not None:
            mask = with_position_bias(position_bias, mask, causal, queries, keys)
            causal = False
        if isinstance(scaling, Tensor):
            query, scaling = query * scaling, 1.0
        drop = dropout if module.training else 0.0
        alpha, gqa = alpha_of(module), key.shape[1] != query.shape[1]
        wanted = bool(output_attentions) or weights_are_recorded()
        if softcap is None and s_aux is None and not wanted:
            out = entmax_attention(query, key, value, mask, drop, causal, scaling, gqa, alpha=alpha)
            return out.transpose(1, 2).contiguous(), None
        at = arrange(name, query, key, value, alpha, mask, drop, causal, scaling, gqa)
        with without_autocast(at.query):
            weights = _dense_weights(at, causal, softcap, s_aux)
            out = weighted_values(F.dropout(weights, drop), at.value).to(at.dtype)
        return out.transpose(1, 2).contiguous(), weights.to(at.dtype) if wanted else None

    attend.__name__ = f"{name}_attention"
    return attend


def _dense_weights(
    at: Attention, causal: bool, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """Weights (batch, heads, queries, keys), before dropout, in float32 or wider."""
    scores = attention_scores(at.query, at.key, None, False, at.scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if at.mask is not None:
        boolean = at.mask.dtype == torch.bool
        scores = scores.masked_fill(~at.mask, -math.inf) if boolean else scores + at.mask
    alpha = at.alpha[..., None, None] if at.alpha.dim() == 2 else at.alpha
    if sinks is None:
        return entmax(scores, alpha=alpha)
    # A sink is one more key of each head, with a score of its own and a value of zero.
    sink = sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return entmax(torch.cat([scores, sink], -1), alpha=alpha)[..., :-1]


def _check_others(name: str, others: dict[str, Any]) -> None:
    for label, given in others.items():
        if given is None or label in _NO_EFFECT:
            continue
        if label in _REFUSED:
            raise FenchelError(
                f"{name}: expected no `{label}` in attention, which is not supported here; "
                f"{_REFUSED[label]}."
            )
        if label not in _warned:
            _warned.add(label)
            warnings.warn(
                f"{name}: attention got `{label}`, which it does not know and leaves out.",
                stacklevel=2,
            )
