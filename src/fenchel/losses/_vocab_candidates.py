r"""The entries of a shard that can be in the support, and rows made of those of all shards.

The threshold of a shard alone is at most that of all classes, since more entries raise it. The
largest of them, one number a row, leaves few candidates. Thresholds are written as :math:`c = \tau
+ 1/(\alpha - 1)`, which is log-sum-exp at :math:`\alpha = 1`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel import kernels
from fenchel.kernels import Lists
from fenchel.losses import _linear_engine as layer
from fenchel.losses._vocab_wire import Wire

Parameter = float | Tensor

BLOCK = 64  # rows whose supports, long as they may be, are in memory at a time


def centres(logits: Tensor, alpha: Parameter) -> Tensor:
    """c of this shard alone (its maximum at alpha = 1), float64; -inf where there is none."""
    rows = logits.shape[0]
    out = torch.full((rows,), -math.inf, dtype=torch.float64, device=logits.device)
    if logits.shape[1] == 0:
        return out
    only_softmax = not isinstance(alpha, Tensor) and alpha == 1
    for first in range(0, rows, BLOCK):
        part = slice(first, first + BLOCK)
        x, of_part = logits[part], at(alpha, part)
        found = x.amax(1).double()
        if not only_softmax:
            _, _, sizes, threshold = kernels.run_sparse("entmax", x, of_part)
            raised = threshold.double() + _margin(of_part, threshold)
            found = torch.where(_is_one(of_part, found) | (sizes == 0), found, raised)
        out[part] = found
    return torch.where(out.isfinite(), out, -math.inf)


def find(
    logits: Tensor, alpha: Parameter, centre: Tensor, kept: Tensor, own: Tensor
) -> Tensor:
    """Which entries can be in the support (none at alpha = 1), and the target, as a mask.

    NaN and inf are always in: they make the row NaN.
    """
    margin = _margin(alpha, centre)
    size = torch.maximum(centre.abs(), margin).clamp(min=1.0)
    low = (centre - margin - 1e-15 * size).to(logits.dtype)
    low = torch.nextafter(low, torch.full_like(low, -math.inf))
    low = low.clamp(min=torch.finfo(low.dtype).min)  # above -inf, which is a mask
    low = torch.where(_is_one(alpha, centre), math.inf, low)
    inside = (logits < low[:, None]).logical_not_().logical_and_(kept[:, None])
    here = (own >= 0).nonzero()[:, 0]
    inside[here, own[here]] = True
    return inside


def solve(
    wire: Wire,
    logits: Tensor,
    inside: Tensor,
    counts: Tensor,
    own: Tensor,
    alpha: Parameter,
    with_slope: bool,
) -> tuple[Tensor, Tensor, Lists]:
    """Losses, slopes in alpha (empty unless wanted), and p - y of this rank's classes.

    ``inside`` has the candidates of this rank, ``counts`` (ranks, rows) how many each rank has.
    """
    rows = logits.shape[0]
    row, column = inside.nonzero().unbind(1)
    first = counts[wire.rank].cumsum(0) - counts[wire.rank]  # of each row, in the list
    place = torch.full_like(own, -1)  # of the target among the candidates
    is_gold = column == own[row]
    place[row[is_gold]] = is_gold.nonzero()[:, 0] - first[row[is_gold]]
    message = torch.cat([place.to(logits.dtype), logits[inside]])
    sizes = (counts.sum(1) + rows).tolist()
    offsets = counts.cumsum(0) - counts  # (ranks, rows): where each rank's begin in joined rows
    joined = logits.new_full((rows, int(counts.sum(0).max())), -math.inf)
    target = torch.zeros_like(own)
    for rank, heard in enumerate(wire.gather_lists(message, sizes)):
        places, scores = heard[:rows].long(), heard[rows:]
        of_row, at_column = _positions(counts[rank], offsets[rank], scores.shape[0])
        joined[of_row, at_column] = scores
        target = torch.where(places >= 0, offsets[rank] + places, target)
    losses, slopes, lists = layer._chunk(joined, target, alpha, True, with_slope, joined.numel())
    assert lists is not None
    of_value = torch.arange(rows, device=own.device).repeat_interleave(lists.starts.diff())
    along = lists.indices - offsets[wire.rank][of_value]
    mine = (along >= 0) & (along < counts[wire.rank][of_value])
    of_mine = of_value[mine]
    starts = torch.cat([own.new_zeros(1), torch.bincount(of_mine, minlength=rows).cumsum(0)])
    indices = column[first[of_mine] + along[mine]].int()
    return losses, slopes, Lists(starts, indices, lists.values[mine])


def at(alpha: Parameter, rows: slice | Tensor) -> Parameter:
    return alpha[rows] if isinstance(alpha, Tensor) else alpha


def between_one_and_two(alpha: Parameter, like: Tensor) -> tuple[Tensor, Tensor]:
    """Whether alpha is 1, and whether it is above 1 and at most 2; one a row."""
    value = alpha[:, 0] if isinstance(alpha, Tensor) else torch.full_like(like, alpha)
    return value == 1, (value > 1) & (value <= 2)


def _positions(counts: Tensor, offsets: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Row and column, in joined rows, of every entry of one rank's list."""
    rows = torch.arange(counts.shape[0], device=counts.device)
    row = rows.repeat_interleave(counts, output_size=total)
    first = counts.cumsum(0) - counts
    along = torch.arange(total, device=counts.device) - first[row]
    return row, offsets[row] + along


def _is_one(alpha: Parameter, like: Tensor) -> Tensor:
    return between_one_and_two(alpha, like)[0]


def _margin(alpha: Parameter, like: Tensor) -> Tensor:
    """1/(alpha - 1), one a row; 0 at alpha = 1, where it is not used."""
    value = alpha[:, 0] if isinstance(alpha, Tensor) else torch.full_like(like, alpha)
    return torch.where(value == 1, 0.0, 1 / (value - 1)).double()
