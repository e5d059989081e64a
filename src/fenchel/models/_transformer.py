from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import Embedding, LayerNorm, Module, ModuleList, init

from fenchel.models._attention import HeadAttention
from fenchel.models._batch import PAD, Batch
from fenchel.models._config import TransformerConfig, check_buildable
from fenchel.models._seq2seq import (
    DecoderState,
    DecoderStep,
    Memory,
    Seq2Seq,
    source_mask,
    wrong_state,
)
from fenchel.models._transformer_layers import (
    DecoderLayer,
    EncoderLayer,
    KeysValues,
    Maps,
    Positioned,
)
from fenchel.models.output import OutputLayer


@dataclass(frozen=True)
class TransformerState:
    """The decoder after a prefix: keys and values of the source and of the prefix, by layer."""

    memory: Memory
    past: tuple[KeysValues, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.past[0][0].shape[0]

    def select(self, index: Tensor) -> TransformerState:
        """The rows ``index``."""
        past = tuple((k[index], v[index]) for k, v in self.past)
        return TransformerState(self.memory.select(index), past)


class TransformerSeq2Seq(Seq2Seq):
    """A Transformer encoder-decoder with sparse attention in all three places.

    With ``"entmax:learned"`` each head of each layer learns its own α, as in Correia et al. (2019).

    Args:
        config: the sizes and choices, with both vocabularies known.

    Example:
        >>> from fenchel.models import Batch, TransformerConfig, TransformerSeq2Seq
        >>> config = TransformerConfig(
        ...     source_vocabulary=9, target_vocabulary=9, width=8, heads=2, layers=3, feedforward=16
        ... )
        >>> model = TransformerSeq2Seq(config).eval()
        >>> batch = Batch.collate([([5, 6, 7], [7, 6])])
        >>> model.attention_maps(batch)["cross"].shape  # (layers, B, heads, T, S)
        torch.Size([3, 1, 2, 3, 3])

    References:
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        check_buildable(config)
        self.config: TransformerConfig = config
        width = config.width
        source = _embedding(config.source_vocabulary, width)
        shared = config.shared_embeddings
        target = source if shared else _embedding(config.target_vocabulary, width)
        self.source_embedding = Positioned(config, source)
        self.target_embedding = Positioned(config, target)
        self.encoder = ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = ModuleList(DecoderLayer(config) for _ in range(config.layers))
        pre = config.norm == "pre"  # whose residual stream is not normalised at its end
        self.encoder_norm: Module = LayerNorm(width) if pre else torch.nn.Identity()
        self.decoder_norm: Module = LayerNorm(width) if pre else torch.nn.Identity()
        tied = target.weight if config.tied_embeddings else None
        self.output = OutputLayer(
            width, config.target_vocabulary, config.output, tied, config.label_smoothing
        )

    def hidden_states(self, batch: Batch) -> Tensor:
        """(B, T, width) decoder outputs when it is fed the target."""
        return self._decode(batch)

    def attention_maps(self, batch: Batch) -> dict[str, Tensor]:
        """``"encoder"``, ``"decoder"`` and ``"cross"``: weights (layers, B, heads, L, S)."""
        self._check(batch)
        maps: Maps = {}
        with torch.no_grad():
            self._decode(batch, maps)
        return {kind: torch.stack(weights) for kind, weights in maps.items()}

    def alphas(self) -> dict[str, Tensor]:
        """``"encoder"``, ``"decoder"``, ``"cross"``: (layers, heads), those that are learned."""
        of_kind = {
            "encoder": [layer.attention for layer in self._encoder_layers()],
            "decoder": [layer.own for layer in self._decoder_layers()],
            "cross": [layer.cross for layer in self._decoder_layers()],
        }
        found = {kind: _learned(layers) for kind, layers in of_kind.items()}
        return {kind: alphas for kind, alphas in found.items() if alphas is not None}

    def blocks(self) -> list[Module]:
        """The layers of the encoder and the decoder."""
        return [*self.encoder, *self.decoder]

    def _encode(
        self, source: Tensor, lengths: Tensor, maps: Maps | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The encoder's output (B, S, width), and the mask of the source's tokens."""
        mask = source_mask(source, lengths)
        mask = None if mask is None else mask[:, None, None]
        x = self.source_embedding(source)
        for layer in self._encoder_layers():
            x = layer(x, mask, maps)
        return self.encoder_norm(x), mask

    def _decode(self, batch: Batch, maps: Maps | None = None) -> Tensor:
        encoded, mask = self._encode(batch.source, batch.source_lengths, maps)
        # Padding comes last in a target, so that no position that counts can look at it.
        x = self.target_embedding(batch.decoder_input)
        for layer in self._decoder_layers():
            x, _ = layer(x, None, encoded, mask, maps)
        return self.decoder_norm(x)

    def _start(self, source: Tensor, source_lengths: Tensor) -> DecoderState:
        encoded, mask = self._encode(source, source_lengths)
        keys = [layer.source_keys(encoded) for layer in self._decoder_layers()]
        rows = torch.arange(source.shape[0], device=source.device)
        memory = Memory(tuple(x for pair in keys for x in pair), mask, rows)
        none = tuple((k[:, :, :0], v[:, :, :0]) for k, v in keys)
        return TransformerState(memory, none)

    def _step(self, state: DecoderState, tokens: Tensor) -> DecoderStep:
        if not isinstance(state, TransformerState):
            raise wrong_state("TransformerSeq2Seq.step", state)
        maps: Maps = {}
        past = []
        x = self.target_embedding(tokens[:, None], state.past[0][0].shape[2])
        flat = state.memory.tensors
        keys = zip(flat[0::2], flat[1::2], strict=True)
        for layer, before, of_source in zip(self._decoder_layers(), state.past, keys, strict=True):
            x, so_far = layer(x, before, of_source, state.memory.mask, maps)
            past.append(cast(KeysValues, so_far))
        p = self.output.probabilities(self.decoder_norm(x)[:, 0])
        attention = torch.stack(maps["cross"]).mean((0, 2))[:, 0]
        return DecoderStep(p, TransformerState(state.memory, tuple(past)), attention)

    def _encoder_layers(self) -> list[EncoderLayer]:
        return cast(list[EncoderLayer], list(self.encoder))

    def _decoder_layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder))


def _embedding(vocabulary: int, width: int) -> Embedding:
    table = Embedding(vocabulary, width, PAD)
    init.normal_(table.weight, std=width**-0.5)
    with torch.no_grad():
        table.weight[PAD] = 0
    return table


def _learned(layers: list[HeadAttention]) -> Tensor | None:
    alphas = [layer.alpha for layer in layers]
    learned = [alpha.detach() for alpha in alphas if isinstance(alpha, Tensor)]
    return torch.stack(learned) if learned else None
