from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_ignore_index
from fenchel._dtypes import full_dtype
from fenchel._graphs import outside_graphs
from fenchel._targets import check_indices
from fenchel.kernels import IGNORED, Lists
from fenchel.losses._cross_entropy_shape import reduce, warn_if_none_kept
from fenchel.losses._linear_entmax_loss import (
    alpha_rows,
    autocast_layer,
    check_index_target,
    loss_dtype,
    mean_scores,
    refuse_layer_transforms,
    smoothed_omega,
)
from fenchel.losses._sharded_layer import ShardedRows, own_target, sharded_backward, sharded_forward
from fenchel.losses._vocab_ranks import Collectives, agree, check_shard, local_shard, replicated
from fenchel.losses.arguments import check_reduction, check_smoothing
from fenchel.regularizers.tsallis_curve import LARGE

_NAME = "vocab_parallel_entmax_loss"


def vocab_parallel_entmax_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    alpha: float | Tensor = 1.5,
    *,
    bias: Tensor | None = None,
    group: Any = None,
    vocab_start: int | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    r"""The loss of an output layer whose weight is sharded over ranks by its classes.

    .. math:: \frac{1}{N} \sum_i L_\alpha(W h_i + b; y_i), \qquad
        W = (W_1; \ldots; W_R), \; W_r \text{ on rank } r

    It is :func:`fenchel.linear_entmax_loss` of the whole weight, value and gradients, with the same
    bits of the loss on all ranks. Logits stay where they are: what is sent is one number per
    row (a bound of its threshold) and the scores above the bound, or, for a row with more than 1024
    of them and for :math:`\alpha = 1`, a few sums. The backward pass adds up the gradient of
    ``hidden`` over the ranks and sends nothing for the weight.

    Every rank of the group calls it with the same ``hidden``, ``target`` and ``alpha``. The
    gradients of ``hidden`` and ``alpha`` are the full ones on every rank: do not reduce them again.
    If a rank dies, the others get a ``RuntimeError``, at the latest after the group's timeout.

    Args:
        hidden: shape (…, d), floating dtype.
        weight: this rank's classes, shape (V_r, d), V_r of any size; or a DTensor (V, d) sharded
            along dim 0, as ``ColwiseParallel`` leaves it.
        target: class indices in [0, V), int64, the shape of ``hidden`` without d.
        alpha: a number in (0, ∞], or a tensor that broadcasts to (…, 1), with gradient.
        bias: as ``weight``: (V_r), a DTensor, or None; ``-inf`` masks a class.
        group: the process group that shares the classes; by default all processes. A DTensor
            brings its own.
        vocab_start: index of this rank's first class; by default shards follow in order of rank.
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    A second derivative, ``torch.func`` and forward mode are refused; ``torch.compile`` breaks its
    graph here.

    Example:
        >>> import os, tempfile, torch.distributed as dist
        >>> store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
        >>> dist.init_process_group("gloo", rank=0, world_size=1, store=store)
        >>> hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
        >>> shard = torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.0, 2.0]])
        >>> fy.vocab_parallel_entmax_loss(hidden, shard, torch.tensor([0, 1]), reduction="none")
        tensor([0.0000, 0.0617], grad_fn=<...>)
        >>> dist.destroy_process_group()
    """
    shard = (weight, bias, group, vocab_start)
    return _sharded_loss(hidden, shard, target, alpha, ignore_index, label_smoothing, reduction)


@outside_graphs
def _sharded_loss(
    hidden: Any,
    shard: tuple[Any, Any, Any, Any],
    target: Any,
    alpha: Any,
    ignore_index: Any,
    label_smoothing: Any,
    reduction: Any,
) -> Tensor:
    name = _NAME
    refuse_layer_transforms(name)
    weight, bias, group, vocab_start = local_shard(name, *shard)
    hidden, target = replicated(name, "hidden", hidden), replicated(name, "target", target)
    rows = check_shard(name, hidden, weight, bias)
    check_reduction(name, reduction)
    smoothing = check_smoothing(name, label_smoothing)
    scores = hidden.detach()[..., :1]
    target = check_index_target(name, target, scores)
    parameter = alpha_rows(name, alpha, scores)
    kept = target != check_ignore_index(name, ignore_index)
    target = torch.where(kept, target, IGNORED)
    ranks = Collectives(name, group)
    start, classes = agree(name, ranks, rows, weight, vocab_start)
    target = check_indices(name, target, classes)
    warn_if_none_kept(name, kept, reduction)
    flat, weight, bias = autocast_layer(rows, weight, bias)
    index = target.reshape(-1)
    own = own_target(index, start, weight.shape[0])
    losses = _Loss.apply(flat, weight, bias, index != IGNORED, own, parameter, ranks)
    if smoothing > 0:
        losses = sharded_smoothing(
            ranks, losses, flat, weight, bias, index, own, parameter, smoothing
        )
    losses = losses.reshape(target.shape)
    return reduce(losses, kept.to(losses.dtype), reduction).to(loss_dtype(hidden))


class _Loss(torch.autograd.Function):
    """One loss per row."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        kept: Tensor,
        own: Tensor,
        alpha: Tensor,
        ranks: Collectives,
    ) -> Tensor:
        hidden, weight = _plain(hidden), _plain(weight)
        bias = None if bias is None else _plain(bias)
        exponent = alpha.double()
        learned = ctx.needs_input_grad[5]
        losses, slopes, lists, *rest = sharded_forward(
            ranks, hidden, weight, bias, kept, own, exponent, learned
        )
        ctx.ranks = ranks
        ctx.save_for_backward(hidden, weight, bias, own, alpha, slopes, *lists, *rest)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise FenchelError(
                f"{_NAME}: expected no second derivative; use `fy.entmax_loss` of full scores for "
                "create_graph=True."
            )
        hidden, weight, bias, own, alpha, slopes, *lists, many, centre = ctx.saved_tensors
        found = ShardedRows(grad, slopes, Lists(*lists), many, centre)
        wanted = ctx.needs_input_grad
        for_hidden, for_weight, for_bias = sharded_backward(
            ctx.ranks, grad, hidden, weight, bias, own, alpha.double(), found, wanted[0]
        )
        for_alpha = None
        if wanted[5]:
            for_alpha = (grad.double() * slopes).sum_to_size(alpha.shape).to(alpha.dtype)
        return (
            for_hidden,
            for_weight if wanted[1] else None,
            for_bias.to(bias.dtype) if bias is not None and wanted[2] else None,
            None,
            None,
            for_alpha,
            None,
        )


def _plain(x: Tensor) -> Tensor:
    """A tensor that has its numbers: one that waits for a collective (``RowwiseParallel``'s output)
    has no memory of its own until an operation is asked for."""
    return x if type(x) in (Tensor, torch.nn.Parameter) else x.clone()


def sharded_smoothing(
    ranks: Collectives,
    losses: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    own: Tensor,
    alpha: Tensor,
    smoothing: float,
) -> Tensor:
    r"""The losses against smoothed targets, from those against the classes.

    As in one process (``smoothed_losses``), against :math:`q = (1 - s) e_y + s u`

    .. math:: L(\theta; q) = L(\theta; e_y) + \Omega(q) + s \theta_y - s \langle \theta, u \rangle,

    and the last two terms are sums over the shards: two numbers per row and rank.
    """
    dtype = losses.dtype
    ignored = target == IGNORED
    hidden = _Everywhere.apply(hidden.masked_fill(ignored[:, None], 0.0), ranks)  # it may be NaN
    is_open = torch.ones(weight.shape[0], dtype=torch.bool, device=weight.device)
    if bias is not None:
        is_open = bias != -torch.inf
    classes = int(ranks.sums(is_open.sum()))
    spread = is_open.to(dtype) / max(1, classes)
    if weight.shape[0] == 0:
        # Zeros that depend on hidden: the other ranks wait for this one in the backward pass.
        terms = hidden[:, :0].sum(1, dtype=dtype) + weight.sum(dtype=dtype)
    else:
        score, mean = mean_scores(hidden, weight, bias, own.clamp(min=0), spread)
        terms = smoothing * (torch.where(own >= 0, score, 0.0) - mean)
    # The shares of the classes are alike: which one is the target's makes no difference.
    even = torch.full((max(1, classes),), 1 / max(1, classes), dtype=dtype, device=weight.device)
    on_class, on_spread = torch.full_like(losses, 1 - smoothing), torch.full_like(losses, smoothing)
    exponent = alpha.to(dtype).clamp(max=LARGE)
    entropy = smoothed_omega(on_class, on_spread, even, torch.zeros_like(target), exponent)
    value = losses + entropy + _Total.apply(terms, ranks)
    value = torch.where(value < 0, value - value.detach(), value)  # rounding
    return value.masked_fill(ignored, 0.0)


class _Everywhere(torch.autograd.Function):
    """What all ranks have; each uses it for its own classes, so its gradients are added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Collectives) -> Tensor:
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        wide = grad.to(full_dtype(grad.dtype), copy=True)
        return ctx.ranks.total(wide).to(grad.dtype), None


class _Total(torch.autograd.Function):
    """A sum over the ranks, of which all make the same use: the gradient of each is its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Collectives) -> Tensor:
        return ranks.sums(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
