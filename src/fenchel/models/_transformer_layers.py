"""The parts of the Transformer: residual connections, layers, positions."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Dropout, Embedding, LayerNorm, Linear, Module, ReLU, Sequential, init

from fenchel._checks import FenchelError
from fenchel.models._attention import HeadAttention
from fenchel.models._config import TransformerConfig

KeysValues = tuple[Tensor, Tensor]
Maps = dict[str, list[Tensor]]  # attention weights, layer by layer


class Residual(Module):
    """The connection around a sublayer f: x + f(norm(x)), or norm(x + f(x)) if ``norm`` is post."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def before(self, x: Tensor) -> Tensor:
        """What the sublayer reads."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, out: Tensor) -> Tensor:
        """x and the sublayer's output together."""
        total = x + self.dropout(out)
        return total if self.pre else self.norm(total)


class EncoderLayer(Module):
    """Self-attention, then a feed-forward network."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.around_attention = Residual(config)
        self.attention = attention_of(config, config.encoder_attention)
        self.around_feedforward = Residual(config)
        self.feedforward = feedforward_of(config)

    def forward(self, x: Tensor, mask: Tensor | None, maps: Maps | None = None) -> Tensor:
        """(B, S, width) to the same; ``mask`` is (B, 1, 1, S), True where there is a token."""
        y = self.around_attention.before(x)
        keys = self.attention.keys(y)
        out, weights = self.attention.attend(y, keys, mask, need_weights=maps is not None)
        record(maps, "encoder", weights)
        x = self.around_attention.after(x, out)
        y = self.around_feedforward.before(x)
        return self.around_feedforward.after(x, self.feedforward(y))


class DecoderLayer(Module):
    """Self-attention to earlier positions, attention to the source, a feed-forward network."""

    forward_methods: ClassVar[tuple[str, ...]] = ("source_keys",)

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.around_own = Residual(config)
        self.own = attention_of(config, config.decoder_attention)
        self.around_cross = Residual(config)
        self.cross = attention_of(config, config.cross_attention)
        self.around_feedforward = Residual(config)
        self.feedforward = feedforward_of(config)

    def source_keys(self, encoded: Tensor) -> KeysValues:
        """What attention needs of the encoder's output (B, S, width), the same at all steps."""
        return self.cross.keys(encoded)

    def forward(
        self,
        x: Tensor,
        past: KeysValues | None,
        source: Tensor | KeysValues,
        mask: Tensor | None,
        maps: Maps | None = None,
    ) -> tuple[Tensor, KeysValues | None]:
        """(B, L, width) to the same, and with ``past`` all keys and values so far.

        Without ``past``, x is a whole prefix and looks back causally; with it, x is the one
        position after it. ``source`` is the encoder's output, or its :meth:`source_keys`.
        """
        of_source = self.cross.keys(source) if isinstance(source, Tensor) else source
        y = self.around_own.before(x)
        k, v = self.own.keys(y)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        need = maps is not None
        out, weights = self.own.attend(y, (k, v), causal=past is None, need_weights=need)
        record(maps, "decoder", weights)
        x = self.around_own.after(x, out)
        y = self.around_cross.before(x)
        out, weights = self.cross.attend(y, of_source, mask, need_weights=need)
        record(maps, "cross", weights)
        x = self.around_cross.after(x, out)
        y = self.around_feedforward.before(x)
        so_far = None if past is None else (k, v)
        return self.around_feedforward.after(x, self.feedforward(y)), so_far


class Positioned(Module):
    """Embeddings of tokens, scaled by √width, plus those of their positions."""

    def __init__(self, config: TransformerConfig, tokens: Embedding) -> None:
        super().__init__()
        self.tokens = tokens
        self.dropout = Dropout(config.dropout)
        self.width = config.width
        self.places: Embedding | None = None
        if config.positions == "learned":
            self.places = Embedding(config.max_length, config.width)
            init.normal_(self.places.weight, std=0.1)

    def forward(self, ids: Tensor, first: int = 0) -> Tensor:
        """(B, L) tokens at positions ``first`` and on, as (B, L, width)."""
        x = self.tokens(ids) * math.sqrt(self.width)
        last = first + ids.shape[1]
        if self.places is None:
            return self.dropout(x + sinusoids(first, last, self.width, x))
        known = self.places.num_embeddings
        if last > known:
            raise FenchelError(
                f"TransformerSeq2Seq: expected sequences of at most `max_length` = {known} tokens, "
                f"which is what learned positions know, but got {last}; use sinusoidal positions."
            )
        return self.dropout(x + self.places.weight[first:last])


def sinusoids(first: int, last: int, width: int, like: Tensor) -> Tensor:
    r"""Rows :math:`\sin(t \omega_i), \cos(t \omega_i)` for t from ``first``, (last − first, width).

    The frequencies :math:`\omega_i = 10000^{-2i / width}` fall from 1.
    """
    places = torch.arange(first, last, dtype=torch.float64, device=like.device)
    steps = torch.arange(0, width, 2, dtype=torch.float64, device=like.device)
    angles = places[:, None] * torch.exp(steps * (-math.log(10000.0) / width))
    return torch.cat([angles.sin(), angles.cos()], 1).to(like.dtype)


def attention_of(config: TransformerConfig, spec: str) -> HeadAttention:
    return HeadAttention(config.width, config.heads, spec, config.attention_dropout)


def feedforward_of(config: TransformerConfig) -> Sequential:
    inner = Linear(config.width, config.feedforward)
    outer = Linear(config.feedforward, config.width)
    for layer in (inner, outer):
        init.xavier_uniform_(layer.weight)
        init.zeros_(layer.bias)
    return Sequential(inner, ReLU(), outer)


def record(maps: Maps | None, kind: str, weights: Tensor | None) -> None:
    if maps is not None and weights is not None:
        maps.setdefault(kind, []).append(weights)
