"""An output layer with its loss, a chunk of rows at a time: nothing of rows x classes is kept.

Forward keeps the nonzeros of p - y. A chunk in which they are many (early in training) keeps
nothing: its logits are computed again in the backward pass, and its products are dense. The torch
ops around it check what they are given as the public function does: a saved graph, a pass of a
compiler or a user may call them with anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import FenchelError
from fenchel._dtypes import Parameter, full_dtype, full_precision
from fenchel.kernels import IGNORED, Lists
from fenchel.regularizers import Tsallis
from fenchel.regularizers.tsallis_curve import slope as tsallis_slope


def check_layer(name: str, hidden: Any, weight: Any, bias: Any) -> Tensor:
    """Check the tensors of a layer; ``hidden`` comes back as (rows, d)."""
    for label, value in (("hidden", hidden), ("weight", weight)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise FenchelError(
                f"{name}: expected `{label}` to be a floating tensor, but got {got}."
            )
    matching = weight.dim() == 2 and hidden.dim() > 0 and hidden.shape[-1] == weight.shape[1] > 0
    if not matching:
        raise FenchelError(
            f"{name}: expected `hidden` of shape (…, d) and `weight` of shape (V, d), d at least "
            f"1, but got {tuple(hidden.shape)} and {tuple(weight.shape)}."
        )
    if weight.shape[0] == 0:
        raise FenchelError(f"{name}: expected at least one class, but `weight` has no rows.")
    cast = torch.is_autocast_enabled(hidden.device.type)
    cast = cast and torch.float64 not in (hidden.dtype, weight.dtype)
    same = hidden.dtype == weight.dtype or cast
    if not same or hidden.device != weight.device:
        raise FenchelError(
            f"{name}: expected `hidden` and `weight` of one dtype on one device, but got "
            f"{hidden.dtype} on {hidden.device} and {weight.dtype} on {weight.device}."
        )
    if bias is not None and (
        not isinstance(bias, Tensor) or bias.shape != weight.shape[:1] or bias.dtype != weight.dtype
    ):
        is_tensor = isinstance(bias, Tensor)
        said = f"{tuple(bias.shape)} and {bias.dtype}" if is_tensor else type(bias).__name__
        raise FenchelError(
            f"{name}: expected `bias` of shape ({weight.shape[0]},) and dtype {weight.dtype}, but "
            f"got {said}."
        )
    return hidden.reshape(-1, hidden.shape[-1])


CHUNK = 512  # rows: enough for a matrix product to run at full speed
# From this share of nonzeros on, dense products with a recomputed chunk are faster.
DENSE_SHARE = 0.1


def chunked_forward(
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
        of_part = alpha_of(alpha, part)
        most = int(DENSE_SHARE * logits.numel()) if may_be_dense else logits.numel()
        loss, slope, found = loss_of_chunk(logits, target[part], of_part, keep, with_slope, most)
        losses.append(loss)
        slopes.append(slope)
        dense.append(found is None)
        lists.append(no_lists(logits) if found is None else found)
    if not lists:  # no rows
        none = full_precision(hidden.new_zeros(0))
        return none, _no_slope(none), no_lists(none), torch.zeros(0, dtype=torch.bool)
    return torch.cat(losses), torch.cat(slopes), kernels.join(lists), torch.tensor(dense)


def chunked_backward(
    grad: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    lists: Lists,
    dense: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in hidden, weight and bias, from one number per row."""
    wide, scale = full_precision(hidden), full_precision(grad)
    columns = kernels.transpose(lists, weight.shape[0], scale)
    grad_hidden = _times_weight(lists, columns, weight, scale)
    grad_weight = _scatter_rows(columns, wide, weight)
    grad_bias = _column_sums(columns)
    chunks = dense.tolist()
    for part, logits in logits_of(hidden, weight, bias, chunks):
        p = kernels.run("entmax", logits, alpha_of(alpha, part), 1)
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
    wide, scale = full_precision(hidden), full_precision(grad)
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
        yield part, full_precision(logits)


def chunk_size(rows: int) -> int:
    """Half of the rows, so that memory is saved on few rows too, up to ``CHUNK``."""
    return max(1, min(CHUNK, max(128, (rows + 1) // 2)))


def loss_of_chunk(
    logits: Tensor, target: Tensor, alpha: Parameter, keep: bool, with_slope: bool, most: int
) -> tuple[Tensor, Tensor, Lists | None]:
    """Losses and, if wanted (else empty), slopes and nonzeros of p - y; None if they are many."""
    kernel = kernels.kernel_for("entmax.loss" if keep else "entmax.loss_value", logits)
    if kernel is not None:
        if not keep:
            loss = kernel(logits, alpha, target)
            return loss, _no_slope(loss), no_lists(logits)
        loss, slope, *lists = kernel(logits, alpha, target, with_slope, most)
        slope = slope.squeeze(-1) if with_slope else _no_slope(loss)
        return loss, slope, None if lists[1] is None else Lists(*lists)
    loss = Tsallis(alpha).loss_rows(logits, target)
    if not keep:
        return loss, _no_slope(loss), no_lists(logits)
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


def alpha_of(alpha: Tensor, part: slice | Tensor) -> Parameter:
    return float(alpha) if alpha.numel() == 1 else alpha[part, None]


def _no_slope(loss: Tensor) -> Tensor:
    return loss.new_zeros(0, dtype=torch.float64)


def no_lists(logits: Tensor) -> Lists:
    starts = torch.zeros(logits.shape[0] + 1, dtype=torch.int64, device=logits.device)
    return Lists(starts, starts[:0].int(), logits.new_zeros(0))


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
    return kernels.times_matrix(compact, full_precision(weight[named]), scale)


def _column_sums(columns: Lists) -> Tensor:
    sums = torch.cumsum(columns.values.double(), 0)
    ends = torch.cat([sums.new_zeros(1), sums])[columns.starts]
    return ends.diff()


_NAME = "linear_entmax_loss"
_Forward = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("fenchel::linear_entmax_loss", mutates_args=())
def linear_op(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    keep: bool,
    with_slope: bool,
    sparse_grad: bool,
) -> _Forward:
    """Losses (rows), slopes in alpha, starts, indices and values of p - y, and dense chunks.

    ``hidden`` is (rows, d), ``alpha`` (1,) or (rows,).
    """
    _check(hidden, weight, bias, target, alpha)
    if target.device.type == "cpu":
        kernels.check_classes(_NAME, target, weight.shape[0])
    wide = alpha.detach().double()
    loss, slope, lists, dense = chunked_forward(
        hidden, weight, bias, target, wide, keep, with_slope, not sparse_grad
    )
    return loss, slope, *lists, dense


@linear_op.register_fake
def _(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    keep: bool,
    with_slope: bool,
    sparse_grad: bool,
) -> _Forward:
    _check(hidden, weight, bias, target, alpha)
    nnz = torch.library.get_ctx().new_dynamic_size()
    rows = hidden.shape[0]
    wide = full_dtype(hidden.dtype)
    chunks = -(-rows // chunk_size(rows))
    return (
        hidden.new_empty(rows, dtype=wide),
        hidden.new_empty(rows if with_slope and keep else 0, dtype=torch.float64),
        hidden.new_empty(rows + 1, dtype=torch.int64),
        hidden.new_empty(nnz, dtype=torch.int32),
        hidden.new_empty(nnz, dtype=wide),
        torch.empty(chunks, dtype=torch.bool),
    )


def _check(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, alpha: Tensor
) -> None:
    """Check all arguments by their metadata."""
    if hidden.dim() != 2:
        raise FenchelError(f"{_NAME}: expected `hidden` of shape (rows, d), not {hidden.shape}.")
    check_layer(_NAME, hidden, weight, bias)
    rows = hidden.shape[:1]
    if target.dtype != torch.int64 or target.shape != rows or target.device != hidden.device:
        raise FenchelError(
            f"{_NAME}: expected `target` to be int64 of shape {tuple(rows)} on {hidden.device}, "
            f"but got {target.dtype} of shape {tuple(target.shape)} on {target.device}."
        )
    if not alpha.is_floating_point() or (alpha.numel() != 1 and alpha.shape != rows):
        raise FenchelError(
            f"{_NAME}: expected `alpha` to be floating, of shape (1,) or {tuple(rows)}, but got "
            f"{alpha.dtype} of shape {tuple(alpha.shape)}."
        )


@torch.library.custom_op("fenchel::linear_entmax_loss_backward", mutates_args=())
def _dense_gradients(
    grad: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    starts: Tensor,
    indices: Tensor,
    values: Tensor,
    dense: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_backward(grad, hidden, weight, bias, target, alpha, starts, indices, values, dense)
    lists = Lists(starts, indices, values)
    if target.device.type == "cpu":
        kernels.check_classes(_NAME, target, weight.shape[0])
        kernels.check_lists(_NAME, *lists, hidden.shape[0], weight.shape[0])
    wide = alpha.detach().double()
    return chunked_backward(grad, hidden, weight, bias, target, wide, lists, dense)


def _check_backward(
    grad: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    starts: Tensor,
    indices: Tensor,
    values: Tensor,
    dense: Tensor,
) -> None:
    _check(hidden, weight, bias, target, alpha)
    rows = hidden.shape[0]
    kernels.check_list_shapes(_NAME, starts, indices, values, rows)
    wide = full_dtype(hidden.dtype)
    chunks = -(-rows // chunk_size(rows))
    fits = (
        grad.shape == hidden.shape[:1]
        and grad.dtype in (wide, hidden.dtype)
        and values.dtype == wide
        and dense.dtype == torch.bool
        and tuple(dense.shape) == (chunks,)
    )
    if not fits:
        raise FenchelError(
            f"{_NAME}: expected {rows} gradients and {chunks} flags of chunks, and values of "
            f"{wide}, but got {tuple(grad.shape)} {grad.dtype}, {tuple(dense.shape)} "
            f"{dense.dtype} and {values.dtype}."
        )


@_dense_gradients.register_fake
def _(grad: Tensor, hidden: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    _check_backward(grad, hidden, weight, *rest)
    bias = weight.new_empty(weight.shape[0], dtype=torch.float64)
    return hidden.new_empty(hidden.shape), weight.new_empty(weight.shape), bias


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Forward) -> None:
    hidden, weight, bias, target, alpha, _, _, ctx.sparse_grad = inputs
    _, slope, *rest = output
    ctx.has_bias = bias is not None
    tensors = (hidden, weight, target, alpha, slope, *rest)
    ctx.save_for_backward(*tensors, *((bias,) if bias is not None else ()))


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    hidden, weight, target, alpha, slope, starts, indices, values, dense, *rest = ctx.saved_tensors
    bias = rest[0] if ctx.has_bias else None
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise FenchelError(
            "linear_entmax_loss: expected no second derivative; use "
            "`fy.entmax_loss(F.linear(hidden, weight), target)` for create_graph=True."
        )
    lists = Lists(starts, indices, values)
    if ctx.sparse_grad:
        for_hidden, named, rows, for_bias = sparse_backward(grad, hidden, weight, lists)
        for_weight = torch.sparse_coo_tensor(
            named[None], rows, weight.shape, check_invariants=False, is_coalesced=True
        )
    else:
        for_hidden, for_weight, for_bias = _dense_gradients(
            grad, hidden, weight, bias, target, alpha, starts, indices, values, dense
        )
    for_alpha = None
    if ctx.needs_input_grad[4]:
        for_alpha = (grad.double() * slope).sum_to_size(alpha.shape).to(alpha.dtype)
    wanted = ctx.needs_input_grad
    return (
        for_hidden if wanted[0] else None,
        for_weight if wanted[1] else None,
        for_bias.to(bias.dtype) if bias is not None and wanted[2] else None,
        None,
        for_alpha,
        None,
        None,
        None,
    )


def _refuse_vmap(*_: Any) -> None:
    raise FenchelError(
        "linear_entmax_loss: expected no torch.func.vmap, because supports differ in size; give "
        "the batch as dimensions of `hidden`."
    )


linear_op.register_autograd(_backward, setup_context=_save)
linear_op.register_vmap(_refuse_vmap)
