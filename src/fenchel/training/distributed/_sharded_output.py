from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from fenchel._checks import FenchelError
from fenchel.losses import vocab_parallel_entmax_loss
from fenchel.models.output import OutputLayer


class ShardedOutput(OutputLayer):
    r"""An output layer whose tokens are dealt out over ranks that have different batches.

    .. math:: \frac{1}{N} \sum_r \sum_i L_\alpha(W h_{ri} + b; y_{ri}), \qquad
        W = (W_1; \ldots; W_R), \; W_r \text{ on rank } r

    Each rank brings the hidden states of its own batch. All of them are gathered, and every rank
    multiplies them with its rows of the weight: logits stay where they are
    (:func:`fenchel.vocab_parallel_entmax_loss`). The loss is the mean over the tokens of all ranks,
    the same on each. The gradient of the weight is complete on its rank. That of the hidden states
    is this rank's own, times the number of ranks, over which DDP and FSDP will divide it.

    Weight and bias are DTensors, so that ``full_tensor()`` has the whole. Probabilities, and a loss
    without the other ranks, need it: :meth:`gathered`.

    Args:
        layer: the whole layer, alike on all ranks, whose parameters nothing else shares.
        mesh: a ``DeviceMesh`` of one dimension.
    """

    def __init__(self, layer: OutputLayer, mesh: Any) -> None:
        vocabulary, width = layer.weight.shape
        with torch.device("meta"):  # the weights are cut from those of the layer
            super().__init__(width, vocabulary, layer.spec, label_smoothing=layer.label_smoothing)
        self.mesh = mesh
        self.register_buffer("closed", layer.closed, persistent=False)
        self.weight = _shard(layer.weight, mesh)
        self.bias = _shard(layer.bias, mesh)
        self.train(layer.training)
        # Whether this rank's tokens count: an idle rank takes part without any.
        self.counts = True
        self._whole: tuple[Tensor, Tensor] | None = None

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The mean loss of the tokens of all ranks, each of which calls it with its own."""
        if self._whole is not None:
            return super().loss(hidden, target)
        rows, tokens = self.rows_that_count(hidden, target)
        if not self.counts:
            rows, tokens = rows[:0], tokens[:0]
        sharded: list[Any] = [self.weight, self.bias]
        weight, bias = (x.to_local() for x in sharded)
        start = _start(self.closed.shape[0], self.mesh)
        closed = self.closed[start : start + bias.shape[0]]
        every_row, every_token = _gather(rows, tokens, self.mesh)
        return vocab_parallel_entmax_loss(
            every_row,
            weight,
            every_token,
            self.alpha,
            bias=bias.masked_fill(closed, -math.inf),
            group=self.mesh.get_group(),
            vocab_start=start,
            label_smoothing=self.label_smoothing,
        )

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Within it, each rank has the whole layer and uses it alone; all enter it together."""
        sharded: list[Any] = [self.weight, self.bias]
        weight, bias = (x.detach().full_tensor() for x in sharded)
        self._whole = weight, bias.masked_fill(self.closed, -math.inf)
        try:
            yield
        finally:
            self._whole = None

    def weight_and_bias(self) -> tuple[Tensor, Tensor]:
        if self._whole is None:
            raise FenchelError(
                "ShardedOutput: expected `with layer.gathered():` around all but the loss, as each "
                "rank has a part of the weight only."
            )
        return self._whole


def _shard(whole: Tensor, mesh: Any) -> Parameter:
    from torch.distributed.tensor import DTensor, Shard  # takes long to import

    start = _start(whole.shape[0], mesh)
    local = whole.detach()[start : _start(whole.shape[0], mesh, 1)].clone()
    sharded = DTensor.from_local(
        local, mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride()
    )
    return Parameter(sharded, whole.requires_grad)


def _start(vocabulary: int, mesh: Any, after: int = 0) -> int:
    """The first token of this rank, or of one after it, as ``torch.chunk`` deals them out."""
    each = -(-vocabulary // mesh.size())
    return min((mesh.get_local_rank() + after) * each, vocabulary)


def _gather(rows: Tensor, tokens: Tensor, mesh: Any) -> tuple[Tensor, Tensor]:
    """The rows and tokens of all ranks, in their order; gradients flow to this rank's rows."""
    group, size = mesh.get_group(), mesh.size()
    if rows.requires_grad:
        rows.register_hook(lambda grad: grad * size)
    count = torch.tensor([rows.shape[0]], device=rows.device)
    counts = _all_gather(count, group, size).flatten().tolist()
    room = max(counts)
    states = _all_gather(_padded(rows.detach(), room), group, size)
    targets = _all_gather(_padded(tokens, room), group, size)
    parts = [of_rank[:n] for of_rank, n in zip(states, counts, strict=True)]
    parts[mesh.get_local_rank()] = rows
    ids = [of_rank[:n] for of_rank, n in zip(targets, counts, strict=True)]
    return torch.cat(parts), torch.cat(ids)


def _padded(x: Tensor, rows: int) -> Tensor:
    padded = x.new_zeros(rows, *x.shape[1:])
    padded[: x.shape[0]] = x
    return padded


def _all_gather(x: Tensor, group: Any, size: int) -> Tensor:
    found = x.new_empty(size, *x.shape)
    dist.all_gather(list(found.unbind()), x, group=group)
    return found
