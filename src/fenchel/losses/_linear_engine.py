"""Output layer and loss in one, a chunk of rows at a time; nothing of size rows x classes is kept.

Forward keeps the nonzeros of p - y. A chunk in which they are many (early in training) keeps
nothing: its logits are computed again in the backward pass, and its products are dense.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fenchel import kernels
from fenchel.kernels import IGNORED, Lists
from fenchel.regularizers import Tsallis
from fenchel.regularizers.tsallis_curve import slope as tsallis_slope

Parameter = float | Tensor

CHUNK = 512  # rows: enough for a matrix product to run at full speed
# From this share of nonzeros on, dense products with a recomputed chunk are faster.
DENSE_SHARE = 0.1


def forward(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    keep: bool,
    with_slope: bool,
    may_be_dense: bool,
) -> tuple[Tensor, Tensor, Lists, Tensor]:
    """Losses and their slopes in alpha, the nonzeros of p - y, and which chunks are dense.

    ``alpha`` is one number or one a row, shape (1,) or (rows,), float64.
    """
    losses, slopes, lists, dense = [], [], [], []
    for part, logits in logits_of(hidden, weight, bias):
        of_part = _alpha_of(alpha, part)
        most = int(DENSE_SHARE * logits.numel()) if may_be_dense else logits.numel()
        loss, slope, found = _chunk(logits, target[part], of_part, keep, with_slope, most)
        losses.append(loss)
        slopes.append(slope)
        dense.append(found is None)
        lists.append(_empty(logits) if found is None else found)
    if not lists:  # no rows
        none = _wide(hidden.new_zeros(0))
        return none, _no_slope(none), _empty(none), torch.zeros(0, dtype=torch.bool)
    return torch.cat(losses), torch.cat(slopes), kernels.join(lists), torch.tensor(dense)


def backward(
    grad: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    lists: Lists,
    dense: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in hidden, weight and bias, from one number a row."""
    wide, scale = _wide(hidden), _wide(grad)
    columns = kernels.transpose(lists, weight.shape[0], scale)
    grad_hidden = _times_weight(lists, columns, weight, scale)
    grad_weight = _scatter_rows(columns, wide, weight)
    grad_bias = _column_sums(columns)
    chunks = dense.tolist()
    for part, logits in logits_of(hidden, weight, bias, chunks):
        p = kernels.run("entmax", logits, _alpha_of(alpha, part), 1)
        residual = _subtract_target(p, target[part]).mul_(scale[part, None]).to(weight.dtype)
        grad_hidden[part] = (residual @ weight).to(grad_hidden.dtype)
        kept = hidden[part].masked_fill((target[part] == IGNORED)[:, None], 0.0)  # it may be NaN
        grad_weight.addmm_(residual.t(), kept.to(weight.dtype))
        grad_bias += residual.sum(0, dtype=grad_bias.dtype)
    return grad_hidden.to(hidden.dtype), grad_weight, grad_bias


def sparse_backward(
    grad: Tensor, hidden: Tensor, weight: Tensor, lists: Lists
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients in hidden, in the named rows of the weight (places, rows), and in the bias."""
    wide, scale = _wide(hidden), _wide(grad)
    columns = kernels.transpose(lists, weight.shape[0], scale)
    grad_hidden = _times_weight(lists, columns, weight, scale)
    named, rows = _named_rows(columns, wide)
    return grad_hidden.to(hidden.dtype), named, rows.to(weight.dtype), _column_sums(columns)


def logits_of(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, wanted: list[bool] | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Slices of rows with their logits (float32 or float64), in one buffer that is reused."""
    rows, classes = hidden.shape[0], weight.shape[0]
    size = chunk_size(rows)
    buffer = None
    for number, first in enumerate(range(0, rows, size)):
        if wanted is not None and not wanted[number]:
            continue
        part = slice(first, min(first + size, rows))
        if buffer is None:
            height = min(size, rows)
            buffer = torch.empty(height, classes, dtype=hidden.dtype, device=hidden.device)
        logits = buffer[: part.stop - first]
        if bias is None:
            torch.mm(hidden[part], weight.t(), out=logits)
        else:
            torch.addmm(bias, hidden[part], weight.t(), out=logits)
        yield part, _wide(logits)


def chunk_size(rows: int) -> int:
    """Half of the rows, so that memory is saved on few rows too, up to ``CHUNK``."""
    return max(1, min(CHUNK, max(128, (rows + 1) // 2)))


def _chunk(
    logits: Tensor, target: Tensor, alpha: Parameter, keep: bool, with_slope: bool, most: int
) -> tuple[Tensor, Tensor, Lists | None]:
    """Losses and, if wanted (else empty), slopes and nonzeros of p - y; None if they are many."""
    kernel = kernels.kernel_for("entmax.loss" if keep else "entmax.loss_value", logits)
    if kernel is not None:
        if not keep:
            loss = kernel(logits, alpha, target)
            return loss, _no_slope(loss), _empty(logits)
        loss, slope, *lists = kernel(logits, alpha, target, with_slope, most)
        slope = slope.squeeze(-1) if with_slope else _no_slope(loss)
        return loss, slope, None if lists[1] is None else Lists(*lists)
    loss = Tsallis(alpha).loss_rows(logits, target)
    if not keep:
        return loss, _no_slope(loss), _empty(logits)
    p = kernels.run("entmax", logits, alpha, 1)
    slope = _no_slope(loss)
    if with_slope:
        ignored = (target == IGNORED)[:, None]
        slope = -tsallis_slope(p.double(), alpha).masked_fill(ignored, 0.0).squeeze(-1)
    residual = _subtract_target(p, target)
    inside = residual != 0
    sizes = inside.sum(1)
    if int(sizes.sum()) > most:
        return loss, slope, None
    starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return loss, slope, Lists(starts, inside.nonzero()[:, 1].int(), residual[inside])


def _subtract_target(p: Tensor, target: Tensor) -> Tensor:
    """p - y, written over p: a chunk more would be as large as the logits."""
    ignored = target == IGNORED
    p.scatter_add_(1, torch.where(ignored, 0, target)[:, None], p.new_full((len(p), 1), -1.0))
    return p.masked_fill_(ignored[:, None], 0.0)


def _alpha_of(alpha: Tensor, part: slice | Tensor) -> Parameter:
    return float(alpha) if alpha.numel() == 1 else alpha[part, None]


def _no_slope(loss: Tensor) -> Tensor:
    return loss.new_zeros(0, dtype=torch.float64)


def _empty(logits: Tensor) -> Lists:
    starts = torch.zeros(logits.shape[0] + 1, dtype=torch.int64, device=logits.device)
    return Lists(starts, starts[:0].int(), logits.new_zeros(0))


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize == 2 else x


def _named_rows(columns: Lists, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The columns that have a nonzero, and their lists times hidden."""
    named = columns.starts.diff().nonzero()[:, 0]
    starts = torch.cat([columns.starts[named], columns.starts[-1:]])
    return named, kernels.times_matrix(Lists(starts, columns.indices, columns.values), hidden)


def _scatter_rows(columns: Lists, hidden: Tensor, weight: Tensor) -> Tensor:
    if weight.dtype == hidden.dtype:
        return kernels.times_matrix(columns, hidden)
    named, rows = _named_rows(columns, hidden)
    return weight.new_zeros(weight.shape).index_copy_(0, named, rows.to(weight.dtype))


def _times_weight(lists: Lists, columns: Lists, weight: Tensor, scale: Tensor) -> Tensor:
    if weight.dtype == lists.values.dtype:
        return kernels.times_matrix(lists, weight, scale)
    # In half precision only the rows that are needed are widened.
    named = columns.starts.diff().nonzero()[:, 0]
    place = torch.zeros(weight.shape[0], dtype=torch.int32, device=weight.device)
    place[named] = torch.arange(named.shape[0], dtype=torch.int32, device=weight.device)
    compact = Lists(lists.starts, place[lists.indices.long()], lists.values)
    return kernels.times_matrix(compact, _wide(weight[named]), scale)


def _column_sums(columns: Lists) -> Tensor:
    sums = torch.cumsum(columns.values.double(), 0)
    ends = torch.cat([sums.new_zeros(1), sums])[columns.starts]
    return ends.diff()
