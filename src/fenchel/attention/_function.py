from __future__ import annotations

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import is_transformed
from fenchel.attention._op import attention_op
from fenchel.attention.dense import (
    attention_scores,
    dense_attention,
    weighted_values,
    without_unseen,
)
from fenchel.attention.shapes import Attention, arrange, without_autocast
from fenchel.maps import SparseRows, entmax


def entmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    alpha: float | Tensor = 1.5,
) -> Tensor:
    r"""Attention with sparse weights, with the arguments of ``F.scaled_dot_product_attention``.

    .. math:: \operatorname{entmax}_\alpha(s \, Q K^\top + M) \, V

    Every query looks at few keys, and only those cost anything in the backward pass. On the CPU
    scores never leave the cache, and training keeps the nonzeros of the weights instead of a
    matrix; on other devices the weights are dense tensors. A query that may look nowhere gets
    zeros.

    Args:
        query: shape (…, heads, L, d). The dimensions in front of (L, d), (S, d) and (S, d_v)
            broadcast against each other.
        key: shape (…, heads, S, d).
        value: shape (…, heads, S, d_v).
        attn_mask: broadcastable to (…, heads, L, S); boolean, True where a query may look, or
            floating and added to the scores.
        dropout_p: share of the weights that are dropped. As in torch, also outside of training:
            pass 0 there.
        is_causal: whether query i sees keys 0 to i only.
        scale: what scores are multiplied by; by default 1/√d.
        enable_gqa: whether groups of query heads share a head of keys and values.
        alpha: a number in (0, ∞] (1 is softmax), or a tensor with one a head, shape (heads,), or
            broadcastable to (…, heads, 1, 1), with gradient.

    Returns:
        Shape (…, heads, L, d_v).

    Example:
        >>> q, k, v = torch.eye(3)[None], 4 * torch.eye(3)[None], torch.tensor([[[1.0], [2], [3]]])
        >>> fy.entmax_attention(q, k, v, alpha=2)
        tensor([[[1.],
                 [2.],
                 [3.]]])

    References:
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019.
    """
    at = arrange(
        "entmax_attention",
        query,
        key,
        value,
        alpha,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
    )
    return _attend(at, dropout_p, bool(is_causal)).reshape(at.shape).to(at.dtype)


def sparse_entmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    alpha: float | Tensor = 1.5,
) -> tuple[Tensor, SparseRows]:
    r"""The output of :func:`entmax_attention` and its weights, without gradient, for analysis.

    Args:
        query: shape (…, heads, L, d).
        key: shape (…, heads, S, d).
        value: shape (…, heads, S, d_v).
        attn_mask: broadcastable to (…, heads, L, S), boolean (True = look) or added.
        is_causal: whether query i sees keys 0 to i only.
        scale: what scores are multiplied by; by default 1/√d.
        enable_gqa: whether groups of query heads share a head of keys and values.
        alpha: a number in (0, ∞], or a tensor with one a head.

    Returns:
        The output, shape (…, heads, L, d_v), and the weights: rows of shape (…, heads, L) over
        S keys. Their ``threshold`` is not known and NaN.

    Example:
        >>> q, k, v = torch.eye(3)[None], 4 * torch.eye(3)[None], torch.tensor([[[1.0], [2], [3]]])
        >>> _, weights = fy.sparse_entmax_attention(q, k, v, alpha=2)
        >>> weights.indices, weights.sizes
        (tensor([0, 1, 2]), tensor([[1, 1, 1]]))
    """
    name = "sparse_entmax_attention"
    at = arrange(name, query, key, value, alpha, attn_mask, 0.0, is_causal, scale, enable_gqa)
    is_causal = bool(is_causal)
    with torch.no_grad():
        if _kernel_serves(at):
            found = attention_op(
                at.query, at.key, at.value, at.mask, at.alpha, 0.0, is_causal, at.scale
            )
            out, starts, indices, values, _ = found
            sizes = starts.diff()
        else:
            scores = attention_scores(at.query, at.key, at.mask, is_causal, at.scale)
            head_alpha = at.alpha[..., None, None] if at.alpha.dim() == 2 else at.alpha
            p = entmax(scores, head_alpha)
            out = weighted_values(p, *without_unseen(at.mask, at.query, at.value))
            inside = p != 0
            sizes, indices, values = inside.sum(-1), inside.nonzero()[:, -1], p[inside]
    sizes = sizes.reshape(at.shape[:-1])
    threshold = torch.full(sizes.shape, torch.nan, dtype=values.dtype, device=values.device)
    weights = SparseRows(indices.long(), values.to(at.dtype), sizes, threshold, at.key.shape[2])
    return out.reshape(at.shape).to(at.dtype), weights


def _attend(at: Attention, dropout_p: float, is_causal: bool) -> Tensor:
    inputs = (at.query, at.key, at.value, at.alpha, at.mask)
    plain = kernels.is_plain(*inputs)
    if not _kernel_serves(at, plain):
        with without_autocast(at.query):
            return dense_attention(
                at.query, at.key, at.value, at.mask, at.alpha, dropout_p, is_causal, at.scale
            )
    learning = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    # A mode that only watches (a counter of FLOPs, say) may watch the core at work.
    traced = not plain and (
        torch.compiler.is_compiling() or kernels.is_captured() or not kernels.have_memory(*inputs)
    )
    if learning or dropout_p > 0 or traced:
        return attention_op(
            at.query, at.key, at.value, at.mask, at.alpha, dropout_p, is_causal, at.scale
        )[0]
    query, key, value = (x.detach() for x in (at.query, at.key, at.value))
    attend = kernels.any_kernel("attention.output", query)
    out: Tensor = attend(query, key, value, at.mask, at.alpha, is_causal, at.scale)
    return out


def _kernel_serves(at: Attention, plain: bool = False) -> bool:
    """Whether a backend has a kernel for these tensors, outside of torch.func and forward mode."""
    return (
        (plain or not (is_transformed() or kernels.has_sizes_only(at.query)))
        and at.query.numel() * at.value.numel() > 0
        and kernels.kernel_for("attention", at.query) is not None
    )
