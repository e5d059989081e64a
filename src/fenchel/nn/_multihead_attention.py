from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from fenchel._checks import FenchelError, check_alpha
from fenchel.attention import entmax_attention
from fenchel.attention.dense import attention_weights, weighted_values
from fenchel.maps import entmax
from fenchel.maps.alpha import Bounds
from fenchel.nn._arguments import written
from fenchel.nn.normalizers import normalizer as by_name

_BOUNDS = Bounds()  # from softmax to sparsemax


class MultiheadAttention(torch.nn.MultiheadAttention):
    r"""``torch.nn.MultiheadAttention`` with sparse weights.

    The constructor, the arguments and the keys of the ``state_dict`` are torch's, so weights load
    from one into the other, and it can take the place of ``self_attn`` in torch's Transformer
    layers. Without ``need_weights`` it runs :func:`fenchel.entmax_attention`.

    Args:
        embed_dim: width of the model.
        num_heads: number of heads; divides ``embed_dim``.
        dropout: share of the weights that are dropped in training.
        bias: whether the projections have biases.
        add_bias_kv: whether a learned key and value are appended.
        add_zero_attn: whether a key and a value of zeros are appended.
        kdim: width of the keys, by default ``embed_dim``.
        vdim: width of the values, by default ``embed_dim``.
        batch_first: whether tensors are (batch, length, width) and not (length, batch, width).
        device: of the parameters.
        dtype: of the parameters.
        alpha: a number in (0, ∞]; with ``learn_alpha``, where learning starts, between 1 and 2.
        learn_alpha: whether each head learns its own :math:`\alpha = 1 + \sigma(a)`, with the
            parameter ``alpha_logit``.
        normalizer: a map from scores to weights along the last axis to use instead of entmax: a
            function such as :func:`fenchel.sparsemax`, a module, or the name of a map, as
            :func:`fenchel.nn.normalizer` takes it (``"fusedmax:0.2"``). The weights are dense then.

    Example:
        >>> attention = fy.nn.MultiheadAttention(8, 2, batch_first=True, alpha=1.5)
        >>> x = torch.randn(3, 5, 8)
        >>> out, weights = attention(x, x, x)
        >>> out.shape, weights.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))

    References:
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        alpha: float = 1.5,
        learn_alpha: bool = False,
        normalizer: Callable[[Tensor], Tensor] | str | None = None,
    ) -> None:
        name = "nn.MultiheadAttention"
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise FenchelError(
                f"{name}: expected `num_heads` that divides `embed_dim`, but got {num_heads} and "
                f"{embed_dim}."
            )
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        # torch's encoder layer has a fused kernel that would do softmax in the place of this
        # module's forward; it asks for this attribute first.
        self._packed = self._qkv_same_embed_dim
        self._qkv_same_embed_dim = False
        self.initial_alpha = check_alpha(name, alpha, "(1 is softmax)")
        if isinstance(normalizer, str):
            normalizer = by_name(normalizer)
        if normalizer is not None and (not callable(normalizer) or learn_alpha):
            raise FenchelError(
                f"{name}: expected `normalizer` to be a callable or the name of a map, without "
                f"`learn_alpha`, but got {normalizer!r} and learn_alpha={learn_alpha!r}."
            )
        self.normalizer = normalizer
        if learn_alpha:
            start = _BOUNDS.logit(name, self.initial_alpha)
            logit = torch.full((num_heads,), start, device=device)
            self.alpha_logit: Parameter | None = Parameter(logit)
        else:
            self.register_parameter("alpha_logit", None)

    @property
    def alpha(self) -> float | Tensor:
        """The present alpha: a number if fixed, else one per head with gradient."""
        logit = self.alpha_logit
        return self.initial_alpha if logit is None else _BOUNDS.alpha(logit)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of queries to keys, as in torch.

        Args:
            query: (L, E), or (L, N, E), or (N, L, E) with ``batch_first``.
            key: the same with S and the keys' width.
            value: the same with S and the values' width.
            key_padding_mask: (N, S) or (S): True where a key is to be ignored, or floating and
                added to the scores.
            need_weights: whether to return the weights, which are dense.
            attn_mask: (L, S) or (N · heads, L, S): True where a query must not look, or floating
                and added.
            average_attn_weights: whether the weights are averaged over heads.
            is_causal: whether query i sees keys 0 to i only; an ``attn_mask`` beside it must say
                the same.

        Returns:
            The output, and the weights (N, L, S), (N, heads, L, S), or None.
        """
        batched = query.dim() == 3
        if query.dim() not in (2, 3) or key.dim() != query.dim() or value.dim() != query.dim():
            raise FenchelError(
                "nn.MultiheadAttention: expected `query`, `key` and `value` of two dimensions, or "
                f"three with a batch, but got {query.dim()}, {key.dim()} and {value.dim()}."
            )
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._project(query, key, value)
        extra = k.shape[2] - key.shape[1]  # appended keys: never masked
        causal = is_causal and attn_mask is None
        if is_causal and not causal and key_padding_mask is None and not extra:
            causal, attn_mask = True, None  # the mask says the same
        mask = self._mask(attn_mask, key_padding_mask, query.shape[0], extra)
        if causal and (mask is not None or extra):
            rows, columns = q.shape[2], k.shape[2] - extra
            triangle = torch.ones(rows, columns, dtype=torch.bool, device=q.device).tril()
            mask = _merge(F.pad(triangle, (0, extra), value=True), mask, q.dtype)
            causal = False
        out, weights = self.attend_heads(q, k, v, mask, causal, need_weights)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def attend_heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        causal: bool,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of queries, keys and values that are projected (batch, heads, length, width).

        Args:
            q: queries.
            k: keys.
            v: values.
            mask: broadcastable to (batch, heads, queries, keys), True where a query may look, or
                floating and added.
            causal: whether query i sees keys 0 to i only.
            need_weights: whether to return the weights.
        """
        dropout = self.dropout if self.training else 0.0
        if not need_weights and self.normalizer is None:
            return entmax_attention(q, k, v, mask, dropout, causal, alpha=self.alpha), None
        normalize = self.normalizer or self._entmax
        weights = F.dropout(attention_weights(q, k, mask, causal, normalize), dropout)
        return weighted_values(weights, v), weights if need_weights else None

    def _entmax(self, scores: Tensor) -> Tensor:
        alpha = self.alpha
        return entmax(scores, alpha=alpha[:, None, None] if isinstance(alpha, Tensor) else alpha)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the heads, (batch, heads, length, width)."""
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self._packed:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        q, k, v = map(F.linear, (query, key, value), weights, biases)
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], 1)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        heads = (x.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v))
        return tuple(heads)

    def _mask(
        self, attn_mask: Tensor | None, padding: Tensor | None, batch: int, extra: int
    ) -> Tensor | None:
        """Both masks as one of :func:`fenchel.entmax_attention`: True, or added, where to look."""
        if attn_mask is not None:
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.unflatten(0, (batch, self.num_heads))
            attn_mask = _keep(attn_mask, extra)
        if padding is not None:
            padding = _keep(padding, extra)[:, None, None]
        if attn_mask is None or padding is None:
            return padding if attn_mask is None else attn_mask
        return _merge(attn_mask, padding, self.out_proj.weight.dtype)

    def extra_repr(self) -> str:
        text = f"{self.embed_dim}, {self.num_heads}, alpha={written(self.initial_alpha)}"
        return text + (", learn_alpha=True" if self.alpha_logit is not None else "")


def _keep(mask: Tensor, extra: int) -> Tensor:
    """torch's True = ignore as True = look; appended keys are open."""
    if mask.dtype == torch.bool:
        return F.pad(~mask, (0, extra), value=True)
    return F.pad(mask, (0, extra))


def _merge(first: Tensor, second: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Two masks, boolean or added, as one."""
    if second is None:
        return first
    if first.dtype == torch.bool and second.dtype == torch.bool:
        return first & second
    added = (
        torch.zeros(x.shape, dtype=dtype, device=x.device).masked_fill(~x, -math.inf)
        if x.dtype == torch.bool
        else x.to(dtype)
        for x in (first, second)
    )
    return next(added) + next(added)
