"""The loss of an output layer whose weight is sharded by rows, a chunk of hidden states at a time.

Ranks agree on a bound of each row's threshold and gather what lies above it: the candidates. All
solve the same short rows, and keep p - y of their own classes. A row with many candidates, as
early in training, is solved from sums, and computed again in the backward pass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fenchel import kernels
from fenchel.kernels import Lists
from fenchel.losses import _linear_engine as layer
from fenchel.losses import _vocab_candidates as candidates
from fenchel.losses import _vocab_sums as sums
from fenchel.losses._vocab_wire import Wire

Parameter = float | Tensor


class Found(NamedTuple):
    """What is known of some rows after the forward pass; on this rank's classes, where it matters.

    ``lists`` has p - y of the rows that are not ``many``; ``centre`` is c of those that are.
    """

    losses: Tensor
    slopes: Tensor  # in alpha; 0 unless wanted
    lists: Lists
    many: Tensor
    centre: Tensor


def forward(
    wire: Wire,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    kept: Tensor,
    own: Tensor,
    alpha: Tensor,
    with_slope: bool,
) -> Found:
    """``alpha`` is (1,) or (rows,), float64; ``kept`` says which rows count."""
    parts = [
        _chunk(wire, logits, kept[part], own[part], layer._alpha_of(alpha, part), with_slope)
        for part, logits in layer.logits_of(hidden, weight, bias)
    ]
    if not parts:
        none = layer._wide(hidden.new_zeros(0))
        return Found(none, none.double(), layer._empty(none), none.bool(), none.double())
    return Found(
        torch.cat([part.losses for part in parts]),
        torch.cat([part.slopes for part in parts]),
        kernels.join([part.lists for part in parts]),
        torch.cat([part.many for part in parts]),
        torch.cat([part.centre for part in parts]),
    )


def backward(
    wire: Wire,
    grad: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    own: Tensor,
    alpha: Tensor,
    found: Found,
    with_hidden: bool,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradients in hidden, the same on all ranks, and in this rank's weight and bias."""
    scale = layer._wide(grad)
    if weight.shape[0] == 0:
        grad_hidden = layer._wide(torch.zeros_like(hidden))
        grad_weight, grad_bias = torch.zeros_like(weight), scale.new_zeros(0)
    else:
        chunks = -(-hidden.shape[0] // layer.chunk_size(hidden.shape[0]))
        dense = torch.zeros(chunks, dtype=torch.bool)  # those are computed below
        grad_hidden, grad_weight, grad_bias = layer.backward(
            grad, hidden, weight, bias, own, alpha, found.lists, dense
        )
        grad_hidden = layer._wide(grad_hidden)
    rows = found.many.nonzero()[:, 0]
    for part, logits in layer.logits_of(hidden[rows], weight, bias):
        at = rows[part]
        of_part = layer._alpha_of(alpha, at)
        residual = sums.probabilities(logits, of_part, found.centre[at])
        here = (own[at] >= 0).nonzero()[:, 0]
        residual[here, own[at][here]] -= 1
        residual = residual.mul_(scale[at, None]).to(weight.dtype)
        grad_hidden[at] = (residual @ weight).to(grad_hidden.dtype)
        grad_weight.addmm_(residual.t(), hidden[at])
        grad_bias += residual.sum(0, dtype=grad_bias.dtype)
    if not with_hidden:
        return None, grad_weight, grad_bias
    return wire.total(grad_hidden).to(hidden.dtype), grad_weight, grad_bias


def own_target(target: Tensor, start: int, classes: int) -> Tensor:
    """The target's row in this rank's weight, or -1."""
    here = (target >= start) & (target < start + classes)
    return torch.where(here, target - start, -1)


def _chunk(
    wire: Wire, logits: Tensor, kept: Tensor, own: Tensor, alpha: Parameter, with_slope: bool
) -> Found:
    centre, inside = candidates.supports(logits, alpha)
    centre = wire.largest(centre)
    places = candidates.find(logits, alpha, centre, kept, own, inside)
    counts = wire.gather(places.counts.int()).long()
    full, convex = candidates.kinds(alpha, centre)
    crowded = convex & (counts.sum(0) > candidates.MOST)
    many = kept & centre.isfinite() & (full | crowded)
    losses, slopes = logits.new_zeros(len(own)), torch.zeros_like(centre)
    lists = layer._empty(logits)
    rows = many.nonzero()[:, 0]
    if len(rows) > 0:
        of_rows, x = candidates.at(alpha, rows), logits if len(rows) == len(own) else logits[rows]
        losses[rows], slopes[rows], centre[rows] = sums.solve(
            wire, x, own[rows], of_rows, centre[rows], with_slope
        )
    rows = (kept & ~many).nonzero()[:, 0]
    if len(rows) > 0:
        listed = ~many[places.row]
        row, column = places.row[listed], places.column[listed]
        scores = logits[row, column].masked_fill(centre[row] == math.inf, math.nan)
        number = torch.cumsum(kept & ~many, 0) - 1  # of a row, among those here
        few = candidates.Places(number[row], column, places.counts[rows])
        losses[rows], slope, lists = candidates.solve(
            wire, scores, few, counts[:, rows], own[rows], candidates.at(alpha, rows), with_slope
        )
        slopes[rows] = slope if with_slope else 0.0
        sizes = torch.zeros_like(own).index_copy_(0, rows, lists.starts.diff())
        lists = lists._replace(starts=torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))
    return Found(losses, slopes, lists, many, centre)
