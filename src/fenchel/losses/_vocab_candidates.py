r"""The entries of a shard that can be in the support, and rows made of those of all shards.

The threshold of a shard alone is at most that of all classes, since more entries raise it. The
largest of them, one number a row, leaves few candidates. Thresholds are written as :math:`c = \tau
+ 1/(\alpha - 1)`, which is log-sum-exp at :math:`\alpha = 1`. Up to there every entry is in the
support: no candidates are listed, and rows are solved from sums.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fenchel import kernels
from fenchel.kernels import Lists
from fenchel.losses import _linear_engine as layer
from fenchel.losses._vocab_wire import Wire

Parameter = float | Tensor

MOST = 1024  # candidates of a row that are listed; with more of them sums are less on the wire
BLOCK = 64  # rows whose supports, long as they may be, are in memory at a time


class Places(NamedTuple):
    """Entries of a shard, by row and then by column.

    ``counts`` has how many there are of each row. Of a row with more than ``MOST`` of them it may
    be all that is known.
    """

    row: Tensor
    column: Tensor
    counts: Tensor


def supports(logits: Tensor, alpha: Parameter) -> tuple[Tensor, Places]:
    """c of this shard alone, float64 (its maximum for alpha at most 1), and its supports.

    Where all is masked c is -inf; where there is NaN or inf, which make a row NaN, it is inf.
    """
    rows, classes = logits.shape
    centre = torch.full((rows,), -math.inf, dtype=torch.float64, device=logits.device)
    counts = torch.zeros(rows, dtype=torch.int64, device=logits.device)
    columns = []
    for first in range(0, rows if classes > 0 else 0, BLOCK):
        part = slice(first, first + BLOCK)
        x, of_part = logits[part], at(alpha, part)
        top = x.amax(1).double()
        found = top
        if isinstance(of_part, Tensor) or of_part > 1:
            indices, _, sizes, threshold = kernels.run_sparse("entmax", x, of_part)
            full, convex = kinds(of_part, top)
            found = torch.where(full, top, threshold.double() + _margin(of_part, top))
            found = torch.where(top == -math.inf, top, found)
            counts[part] = sizes
            short = (sizes <= MOST) | ~convex
            columns.append(indices[short.repeat_interleave(sizes)])
        centre[part] = torch.where((top < math.inf) & ~found.isnan(), found, math.inf)
    listed = torch.where((counts <= MOST) | ~kinds(alpha, centre)[1], counts, 0)
    row = torch.arange(rows, device=logits.device).repeat_interleave(listed)
    return centre, Places(row, torch.cat(columns) if columns else row, counts)


def find(
    logits: Tensor, alpha: Parameter, centre: Tensor, kept: Tensor, own: Tensor, inside: Places
) -> Places:
    """Entries of the shard's supports that can be in those of all (for alpha above 1); targets."""
    rows, classes = logits.shape
    margin, full = _margin(alpha, centre), kinds(alpha, centre)[0]
    size = torch.maximum(centre.abs(), margin).clamp(min=1.0)
    low = (centre - margin - 1e-15 * size).to(logits.dtype)
    low = torch.nextafter(low, torch.full_like(low, -math.inf))
    low = low.clamp(min=torch.finfo(low.dtype).min)  # above -inf, which is a mask
    low = torch.where(kept & ~full & (centre < math.inf), low, math.inf)
    row, column, counts = inside
    above = logits[row, column] >= low[row]
    found = [(classes * row + column)[above]]
    unlisted = torch.zeros_like(counts)
    listed = torch.bincount(row, minlength=rows)
    for block in (listed != counts).nonzero()[:, 0].split(BLOCK):
        is_above = logits[block] >= low[block, None]
        number = is_above.sum(1)
        few = number <= MOST
        unlisted[block] = torch.where(few, 0, number)
        at_row, at_column = is_above[few].nonzero().unbind(1)
        found.append(classes * block[few][at_row] + at_column)
    gold = (own >= 0).nonzero()[:, 0]
    found.append(classes * gold + own[gold])
    places = torch.cat(found).unique()
    row = places.div(max(1, classes), rounding_mode="floor")
    counts = torch.maximum(torch.bincount(row, minlength=rows), unlisted)
    return Places(row, places - classes * row, counts)


def solve(
    wire: Wire,
    scores: Tensor,
    places: Places,
    counts: Tensor,
    own: Tensor,
    alpha: Parameter,
    with_slope: bool,
) -> tuple[Tensor, Tensor, Lists]:
    """Losses, slopes in alpha (empty unless wanted), and p - y of this rank's classes.

    ``scores`` are those at the ``places`` of this rank, ``counts`` (ranks, rows) the candidates of
    all ranks.
    """
    rows = counts.shape[1]
    row, column, mine = places
    first = mine.cumsum(0) - mine  # of each row, in the list
    place = torch.full_like(own, -1)  # of the target among the candidates
    is_gold = column == own[row]
    place[row[is_gold]] = is_gold.nonzero()[:, 0] - first[row[is_gold]]
    message = torch.cat([place.to(scores.dtype), scores])
    sizes = (counts.sum(1) + rows).tolist()
    offsets = counts.cumsum(0) - counts  # (ranks, rows): where each rank's begin in joined rows
    joined = scores.new_full((rows, int(counts.sum(0).max())), -math.inf)
    target = torch.zeros_like(own)
    for rank, heard in enumerate(wire.gather_lists(message, sizes)):
        gold = heard[:rows].long()
        joined[_positions(counts[rank], offsets[rank])] = heard[rows:]
        target = torch.where(gold >= 0, offsets[rank] + gold, target)
    losses, slopes, lists = layer._chunk(joined, target, alpha, True, with_slope, joined.numel())
    assert lists is not None
    of_value = torch.arange(rows, device=own.device).repeat_interleave(lists.starts.diff())
    along = lists.indices - offsets[wire.rank][of_value]
    here = (along >= 0) & (along < mine[of_value])
    of_value, along = of_value[here], along[here]
    starts = torch.cat([own.new_zeros(1), torch.bincount(of_value, minlength=rows).cumsum(0)])
    return losses, slopes, Lists(starts, column[first[of_value] + along].int(), lists.values[here])


def at(alpha: Parameter, rows: slice | Tensor) -> Parameter:
    return alpha[rows] if isinstance(alpha, Tensor) else alpha


def kinds(alpha: Parameter, like: Tensor) -> tuple[Tensor, Tensor]:
    """Whether alpha is at most 1, and whether it is above 1 and at most 2; one per row."""
    value = _values(alpha, like)
    return (value > 0) & (value <= 1), (value > 1) & (value <= 2)


def _positions(counts: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column, in joined rows, of every entry of one rank's list."""
    row = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    first = counts.cumsum(0) - counts
    return row, (offsets - first)[row] + torch.arange(len(row), device=counts.device)


def _margin(alpha: Parameter, like: Tensor) -> Tensor:
    """1/(alpha - 1), one per row; 0 up to alpha = 1, where it is not used."""
    value = _values(alpha, like)
    return torch.where(value <= 1, 0.0, 1 / (value - 1))


def _values(alpha: Parameter, like: Tensor) -> Tensor:
    return alpha[:, 0].to(like) if isinstance(alpha, Tensor) else torch.full_like(like, alpha)
