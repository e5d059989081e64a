from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import LSTM, Dropout, Embedding
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fenchel.models._attention import GlobalAttention, Keys
from fenchel.models._batch import PAD, Batch
from fenchel.models._config import LSTMConfig, check_buildable
from fenchel.models._seq2seq import (
    DecoderState,
    DecoderStep,
    Memory,
    Seq2Seq,
    source_mask,
    wrong_state,
)
from fenchel.models.output import OutputLayer

Layers = list[tuple[Tensor, Tensor | None]]  # weight and bias of each layer's gates
Recurrent = tuple[tuple[Tensor, Tensor], ...]  # (h, c), each (n, d), of each layer


@dataclass(frozen=True)
class LSTMState:
    """The decoder after a prefix: sources, LSTM states of each layer, last attentional output.

    The layers' weights are the model's in the form that steps multiply with.
    """

    layers: Layers
    memory: Memory
    recurrent: Recurrent
    feed: Tensor

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.feed.shape[0]

    def select(self, index: Tensor) -> LSTMState:
        """The rows ``index``."""
        recurrent = tuple((h[index], c[index]) for h, c in self.recurrent)
        return LSTMState(self.layers, self.memory.select(index), recurrent, self.feed[index])


class LSTMSeq2Seq(Seq2Seq):
    """An LSTM encoder-decoder with global attention, as in Peters et al. (2019) §2.

    Args:
        config: the sizes and choices, with both vocabularies known.

    Example:
        >>> from fenchel.models import Batch, LSTMConfig, LSTMSeq2Seq
        >>> config = LSTMConfig(
        ...     source_vocabulary=9, target_vocabulary=9, embedding=8, hidden=8, layers=1
        ... )
        >>> model = LSTMSeq2Seq(config)
        >>> loss = model.loss(Batch.collate([([5, 6, 7], [7, 6, 5])]))
        >>> state = model.eval().start(torch.tensor([[5, 6, 7]]), torch.tensor([3]))
        >>> model.step(state, torch.tensor([1])).probabilities.shape
        torch.Size([1, 9])

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        check_buildable(config)
        self.config: LSTMConfig = config
        width, layers = config.hidden, config.layers
        between = config.dropout if layers > 1 else 0.0
        self.source_embedding = Embedding(config.source_vocabulary, config.embedding, PAD)
        self.target_embedding = (
            self.source_embedding
            if config.shared_embeddings
            else Embedding(config.target_vocabulary, config.embedding, PAD)
        )
        self.encoder = LSTM(
            config.embedding,
            width // 2 if config.bidirectional else width,
            layers,
            batch_first=True,
            dropout=between,
            bidirectional=config.bidirectional,
        )
        fed = config.embedding + (width if config.input_feeding else 0)
        self.decoder = LSTM(fed, width, layers, batch_first=True, dropout=between)
        self.attention = GlobalAttention(width, config.attention_score, config.attention)
        self.dropout = Dropout(config.dropout)
        tied = self.target_embedding.weight if config.tied_embeddings else None
        if tied is not None:  # as an output's weight, N(0, 1) would start with scores of √d
            with torch.no_grad():
                tied.mul_(width**-0.5)
        self.output = OutputLayer(
            width, config.target_vocabulary, config.output, tied, config.label_smoothing
        )

    def hidden_states(self, batch: Batch) -> Tensor:
        """(B, T, d) attentional outputs when the decoder is fed the target."""
        return self._decode(batch)[0]

    def attention_maps(self, batch: Batch) -> dict[str, Tensor]:
        """``"cross"``: weights (1, B, 1, T, S) of target positions over the source."""
        self._check(batch)
        with torch.no_grad():
            return {"cross": self._decode(batch)[1][None, :, None]}

    def alphas(self) -> dict[str, Tensor]:
        """``"cross"``: the learned α of the attention, if it is learned."""
        if self.config.attention != "entmax:learned":
            return {}
        alpha: Tensor = self.attention.normalizer.alpha  # type: ignore[assignment]
        return {"cross": alpha.detach()}

    def _embed(self, table: Embedding, tokens: Tensor) -> Tensor:
        x = table(tokens)
        if table.weight is self.output.weight:  # small as an output's weight, of size 1 as input
            x = x * math.sqrt(self.config.hidden)
        return self.dropout(x)

    def _encode(self, source: Tensor, lengths: Tensor) -> tuple[Keys, Recurrent]:
        embedded = self._embed(self.source_embedding, source)
        packed = pack_padded_sequence(embedded, lengths.cpu(), True, enforce_sorted=False)
        states, (h, c) = self.encoder(packed)
        memory = pad_packed_sequence(states, True, total_length=source.shape[1])[0]
        if self.config.bidirectional:  # (layers · 2, B, d / 2): both directions side by side
            h, c = (torch.cat([x[0::2], x[1::2]], 2) for x in (h, c))
        keys = self.attention.prepare(memory, source_mask(source, lengths))
        return keys, tuple(zip(h.unbind(0), c.unbind(0), strict=True))

    def _decode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Attentional outputs (B, T, d) with dropout, and attention weights (B, T, S)."""
        keys, recurrent = self._encode(batch.source, batch.source_lengths)
        embedded = self._embed(self.target_embedding, batch.decoder_input)
        if not self.config.input_feeding:
            h, c = (torch.stack(x) for x in zip(*recurrent, strict=True))
            states, _ = self.decoder(embedded, (h, c))
            outputs, weights = self.attention(states, keys)
            return self.dropout(outputs), weights
        layers = self._layer_weights()
        feed = torch.zeros_like(recurrent[-1][0])
        outputs, weights = [], []
        for gates in self._input_gates(embedded).unbind(1):
            recurrent = self._advance(gates, feed, recurrent, layers)
            out, of_step = self.attention(recurrent[-1][0][:, None], keys)
            feed = self.dropout(out[:, 0])
            outputs.append(feed)
            weights.append(of_step)
        return torch.stack(outputs, 1), torch.cat(weights, 1)

    def _start(self, source: Tensor, source_lengths: Tensor) -> DecoderState:
        keys, recurrent = self._encode(source, source_lengths)
        rows = torch.arange(source.shape[0], device=source.device)
        memory = Memory((keys.scores, keys.values), keys.mask, rows)
        feed = torch.zeros_like(recurrent[-1][0])
        return LSTMState(self._layer_weights(), memory, recurrent, feed)

    def _step(self, state: DecoderState, tokens: Tensor) -> DecoderStep:
        if not isinstance(state, LSTMState):
            raise wrong_state("LSTMSeq2Seq.step", state)
        embedded = self._embed(self.target_embedding, tokens)
        gates = self._input_gates(embedded)
        recurrent = self._advance(gates, state.feed, state.recurrent, state.layers)
        scores, values = state.memory.tensors
        keys = Keys(scores, values, state.memory.mask)
        out, weights = self.attention(recurrent[-1][0][:, None], keys)
        feed = self.dropout(out[:, 0])
        following = LSTMState(state.layers, state.memory, recurrent, feed)
        return DecoderStep(self.output.probabilities(feed), following, weights[:, 0])

    def _input_gates(self, embedded: Tensor) -> Tensor:
        """The tokens' share of the first layer's gates, for all steps in one product."""
        weight = self._of_decoder("weight_ih", 0)[:, : self.config.embedding]
        bias = self._of_decoder("bias_ih", 0) + self._of_decoder("bias_hh", 0)
        return F.linear(embedded, weight, bias)

    def _layer_weights(self) -> Layers:
        """Weights of each layer's gates on what is fed from below and its own last state."""
        found: Layers = []
        for k in range(self.config.layers):
            below = self._of_decoder("weight_ih", k)
            if k == 0:  # the tokens' share is in `_input_gates`
                below = below[:, self.config.embedding :]
            own = self._of_decoder("weight_hh", k)
            bias = self._of_decoder("bias_ih", k) + self._of_decoder("bias_hh", k)
            found.append((torch.cat([below, own], 1), None if k == 0 else bias))
        return found

    def _of_decoder(self, name: str, layer: int) -> Tensor:
        return getattr(self.decoder, f"{name}_l{layer}")

    def _advance(
        self,
        gates: Tensor,
        feed: Tensor,
        recurrent: Recurrent,
        layers: Layers,
    ) -> Recurrent:
        """One step of all layers from the gates' share of the tokens (n, 4d)."""
        found = []
        below = feed
        for k, ((weight, bias), (h, c)) in enumerate(zip(layers, recurrent, strict=True)):
            if k == 0:
                read = torch.cat([feed, h], 1) if self.config.input_feeding else h
                total = gates + F.linear(read, weight)
            else:
                total = F.linear(torch.cat([self.dropout(below), h], 1), weight, bias)
            enter, forget, new, leave = total.chunk(4, 1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
            below = torch.sigmoid(leave) * torch.tanh(c)
            found.append((below, c))
        return tuple(found)
