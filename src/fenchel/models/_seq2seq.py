from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from fenchel._checks import FenchelError
from fenchel.models._batch import Batch, check_source, check_target, check_tokens
from fenchel.models._config import LSTMConfig, TransformerConfig
from fenchel.models.output import OutputLayer


class DecoderState(Protocol):
    """What a decoder knows after a prefix: rows that a search reorders, repeats or drops."""

    @property
    def rows(self) -> int:
        """Number of rows, one for each prefix."""

    def select(self, index: Tensor) -> DecoderState:
        """The state of the rows ``index`` (m,), int64."""


@dataclass(frozen=True)
class DecoderStep:
    """What a decoder says after one more token.

    Attributes:
        probabilities: (n, V) of the next token, with exact zeros; float32, or float64 for a model
            in float64.
        state: for the next step.
        attention: (n, S) weights over the source, the mean over heads and layers; None if the
            model has none.
    """

    probabilities: Tensor
    state: DecoderState
    attention: Tensor | None


class Seq2Seq(Module):
    """A model of targets given sources: what training and search need of it.

    Training calls :meth:`loss`; a search calls :meth:`start` once and :meth:`step` for each token,
    in ``eval()`` mode, both without gradient.

    Sharding (FSDP) asks for :meth:`blocks`, the layers whose weights are gathered one at a time,
    and ``forward_methods``, the ways into the model for which the others are gathered.
    """

    forward_methods: ClassVar[tuple[str, ...]] = (
        "loss",
        "probabilities",
        "start",
        "step",
        "attention_maps",
    )
    config: LSTMConfig | TransformerConfig
    output: OutputLayer

    def loss(self, batch: Batch) -> Tensor:
        """The mean loss of the target tokens."""
        self._check(batch)
        hidden = self.hidden_states(batch)
        return self.output.loss(hidden.flatten(0, 1), batch.target.flatten())

    def probabilities(self, batch: Batch) -> Tensor:
        """(B, T, V) probabilities of each target token given the ones before it."""
        self._check(batch)
        return self.output.probabilities(self.hidden_states(batch))

    def hidden_states(self, batch: Batch) -> Tensor:
        """(B, T, d) what the output layer reads when the decoder is fed the target."""
        raise NotImplementedError

    def start(self, source: Tensor, source_lengths: Tensor) -> DecoderState:
        """Encode sources (B, S): a state with one row for each, before any token."""
        check_source(type(self).__name__, source, source_lengths, self.config.source_vocabulary)
        with torch.no_grad():
            return self._start(source, source_lengths)

    def step(self, state: DecoderState, tokens: Tensor) -> DecoderStep:
        """Feed tokens (n,), ``BOS`` first, and get the probabilities of the next ones."""
        name = type(self).__name__
        check_tokens(name, tokens, state.rows, self.config.target_vocabulary)
        with torch.no_grad():
            return self._step(state, tokens)

    def blocks(self) -> list[Module]:
        """The layers that make up most of the model; none if it cannot be sharded by layers."""
        return []

    def attention_maps(self, batch: Batch) -> dict[str, Tensor]:
        """Weights (layers, B, heads, L, S) of each kind of attention, without gradient."""
        raise NotImplementedError

    def alphas(self) -> dict[str, Tensor]:
        """The learned α of each kind of attention; empty if none is learned."""
        return {}

    def support_size(self) -> float:
        """The mean number of tokens with probability in the last batch, for a progress display."""
        return self.output.support_size()

    def _start(self, source: Tensor, source_lengths: Tensor) -> DecoderState:
        raise NotImplementedError

    def _step(self, state: DecoderState, tokens: Tensor) -> DecoderStep:
        raise NotImplementedError

    def _check(self, batch: Batch) -> None:
        name, config = type(self).__name__, self.config
        check_source(name, batch.source, batch.source_lengths, config.source_vocabulary)
        check_target(name, batch.target, batch.source.shape[0], config.target_vocabulary)


@dataclass(frozen=True)
class Memory:
    """Tensors of the encoded sources, one row for each row of a state.

    A search reorders prefixes of the same source all the time; then nothing is copied.
    """

    tensors: tuple[Tensor, ...]
    mask: Tensor | None
    source: Tensor

    def select(self, index: Tensor) -> Memory:
        source = self.source[index]
        if torch.equal(source, self.source):
            return self
        tensors = tuple(x.index_select(0, index) for x in self.tensors)
        mask = None if self.mask is None else self.mask.index_select(0, index)
        return Memory(tensors, mask, source)


def source_mask(source: Tensor, lengths: Tensor) -> Tensor | None:
    """(B, S), True where a token counts; None if all do."""
    width = source.shape[1]
    if lengths.device.type == "cpu" and int(lengths.min()) == width:
        return None
    places = torch.arange(width, device=source.device)
    return places < lengths.to(source.device)[:, None]


def wrong_state(name: str, state: object) -> FenchelError:
    return FenchelError(
        f"{name}: expected a state of this model's `start` or `step`, but got "
        f"{type(state).__name__}."
    )
