from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fenchel import kernels
from fenchel._checks import (
    FenchelError,
    check_alphas,
    check_bool,
    check_ignore_index,
    refuse_transforms,
)
from fenchel._targets import check_target, is_index
from fenchel.kernels import IGNORED
from fenchel.losses._cross_entropy_shape import reduce, warn_if_none_kept
from fenchel.losses._output_layer import check_layer, linear_op
from fenchel.losses.arguments import check_reduction, check_smoothing, check_weight
from fenchel.regularizers.tsallis_curve import LARGE, log_a, weighted_log


def linear_entmax_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    alpha: float | Tensor = 1.5,
    *,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    class_weight: Tensor | None = None,
    reduction: str = "mean",
    sparse_grad: bool = False,
) -> Tensor:
    r"""An output layer and its entmax loss in one, without the N×V logits.

    .. math:: \frac{1}{N} \sum_i L_\alpha(W h_i + b; y_i)

    It is ``fy.entmax_loss(F.linear(hidden, weight, bias), target, alpha)``, faster and in less
    memory: logits live in one buffer for a chunk of rows, the forward pass keeps only the nonzeros
    of p − y, and the backward pass touches only the rows of the weight that they name. Where
    supports are large, as early in training, a chunk is computed again instead of kept.

    Args:
        hidden: shape (…, d), floating dtype.
        weight: shape (V, d), as in ``torch.nn.Linear``.
        target: class indices, int64, the shape of ``hidden`` without d.
        alpha: a number in (0, ∞], or a tensor that broadcasts to (…, 1), with gradient.
        bias: shape (V), or None; ``-inf`` masks a class.
        ignore_index: class index of rows that do not count.
        label_smoothing: how much of each target is spread evenly over the unmasked classes.
        class_weight: one number per class, shape (V).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        sparse_grad: whether the gradient of ``weight`` is a sparse tensor of the rows that have
            one, for ``torch.optim.SparseAdam`` and the like.

    A second derivative, ``torch.func`` and forward mode are refused. ``torch.compile`` works,
    except with ``sparse_grad``.

    Example:
        >>> hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
        >>> weight = torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.0, 2.0]])
        >>> fy.linear_entmax_loss(hidden, weight, torch.tensor([0, 1]), reduction="none")
        tensor([0.0000, 0.0617], grad_fn=<...>)
    """
    name = "linear_entmax_loss"
    refuse_layer_transforms(name)
    rows = check_layer(name, hidden, weight, bias)
    check_reduction(name, reduction)
    smoothing = check_smoothing(name, label_smoothing)
    scores = hidden.detach()[..., :1].expand(*hidden.shape[:-1], weight.shape[0])  # no memory
    target = check_index_target(name, target, scores)
    class_weight = check_weight(name, class_weight, scores, scores.dim() - 1, "class_weight")
    if check_bool(name, "sparse_grad", sparse_grad) and smoothing > 0:
        raise FenchelError(
            f"{name}: expected no `label_smoothing` with `sparse_grad`, because it gives every row "
            "of the weight a gradient."
        )
    parameter = alpha_rows(name, alpha, scores)
    kept = target != check_ignore_index(name, ignore_index)
    target = torch.where(kept, target, IGNORED)
    warn_if_none_kept(name, kept, reduction)
    if kernels.has_sizes_only(hidden, weight):
        # The op's lists would need a symbol for their length: all that is asked for is a shape.
        like = F.linear(hidden, weight, bias).sum(-1) * 0
        return reduce(like, like, reduction).to(loss_dtype(hidden))
    flat, weight, bias = autocast_layer(rows, weight, bias)
    tensors = (flat, weight, bias, parameter)
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    learned = keep and parameter.requires_grad
    index = target.reshape(-1)
    losses = linear_op(flat, weight, bias, index, parameter, keep, learned, sparse_grad)[0]
    counts = kept.reshape(-1).to(losses.dtype)
    if class_weight is not None:
        of_row = class_weight[torch.where(kept, target, 0).reshape(-1)]
        counts = counts * of_row
    if smoothing > 0:
        losses = smoothed_losses(
            name, losses, flat, weight, bias, index, parameter, smoothing, class_weight
        )
    elif class_weight is not None:
        losses = losses * counts
    losses = losses.reshape(target.shape)
    return reduce(losses, counts, reduction).to(loss_dtype(hidden))


def refuse_layer_transforms(name: str) -> None:
    instead = "use `fy.entmax_loss(F.linear(hidden, weight), target)` there"
    refuse_transforms(name, f"supports differ in size; {instead}")


def check_index_target(name: str, target: Any, scores: Tensor) -> Tensor:
    target = check_target(name, target, scores, scores.dim() - 1)
    if not is_index(target):
        raise FenchelError(
            f"{name}: expected class indices (int64) in `target`, but got {target.dtype}; for "
            "probabilities use `fy.entmax_loss(F.linear(hidden, weight), target)`."
        )
    return target


def alpha_rows(name: str, alpha: Any, scores: Tensor) -> Tensor:
    """alpha as a tensor, (1,) or (rows,)."""
    meaning = "(1 is cross-entropy, 2 is the sparsemax loss)"
    value = check_alphas(name, alpha, scores, scores.dim() - 1, meaning)
    if not isinstance(value, Tensor):
        return torch.full((1,), value, dtype=torch.float64, device=scores.device)
    value = value.to(scores.device)
    if value.numel() == 1:
        return value.reshape(1)
    return value.expand(*scores.shape[:-1], 1).reshape(-1)


def autocast_layer(
    hidden: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What F.linear would multiply under autocast."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
        bias = None if bias is None else bias.to(dtype)
        return hidden.to(dtype), weight.to(dtype), bias
    return hidden, weight, bias


def loss_dtype(hidden: Tensor) -> torch.dtype:
    if torch.is_autocast_enabled(hidden.device.type) and hidden.dtype != torch.float64:
        return torch.float32
    return hidden.dtype


def smoothed_losses(
    name: str,
    losses: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: Tensor,
    smoothing: float,
    class_weight: Tensor | None,
) -> Tensor:
    r"""The weighted losses against smoothed targets, from those against the classes.

    Against the target :math:`q = A e_y + B u` (u spreads over the open classes, times their
    weights)

    .. math:: L(\theta; q) = L(\theta; e_y) + \Omega(q) + (1 - A) \theta_y - B \langle \theta, u
        \rangle,

    and :math:`\langle \theta, u \rangle` needs one product with :math:`W^\top u`, not all logits.
    """
    if class_weight is not None and alpha.numel() > 1:
        raise FenchelError(
            f"{name}: expected one `alpha` with `label_smoothing` and `class_weight`, but got "
            f"{alpha.numel()} of them."
        )
    dtype = losses.dtype
    ignored = target == IGNORED
    hidden = hidden.masked_fill(ignored[:, None], 0.0)  # it may be NaN
    known = torch.where(ignored, 0, target)
    open_classes = torch.ones(weight.shape[0], dtype=dtype, device=weight.device)
    if bias is not None:
        open_classes = (bias != -torch.inf).to(dtype)
    spread = open_classes / open_classes.sum().clamp(min=1)
    share = torch.ones_like(losses)
    if class_weight is not None:
        spread = spread * class_weight.to(dtype)
        share = class_weight.to(dtype)[known]
    mass = spread.sum()
    spread = spread / torch.where(mass == 0, 1.0, mass)  # so that B <= 1: its powers are tame
    total = (1 - smoothing) * share + smoothing * mass
    known_total = torch.where(total == 0, 1.0, total)
    on_class = (1 - smoothing) * share / known_total
    on_spread = smoothing * mass / known_total
    score, mean = mean_scores(hidden, weight, bias, known, spread)
    own = smoothed_omega(on_class, on_spread, spread, known, alpha.to(dtype).clamp(max=LARGE))
    value = losses + own + (1 - on_class) * score - on_spread * mean
    value = torch.where(value < 0, value - value.detach(), value)  # rounding
    return (total * value).masked_fill(ignored, 0.0)


def mean_scores(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, spread: Tensor
) -> tuple[Tensor, Tensor]:
    """The score of the target, and the mean of all scores with weights ``spread``."""
    dtype = spread.dtype
    score = (hidden.to(dtype) * weight[target].to(dtype)).sum(1)
    mean = hidden.to(dtype) @ (spread.to(weight.dtype) @ weight).to(dtype)
    if bias is not None:
        known = torch.where(bias == -torch.inf, 0.0, bias.to(dtype))
        score = score + known[target]  # with a masked target the loss is infinite already
        mean = mean + (known * spread).sum()
    return score, mean


def smoothed_omega(
    on_class: Tensor, on_spread: Tensor, spread: Tensor, target: Tensor, alpha: Tensor
) -> Tensor:
    """Tsallis's Ω of the targets A e_y + B u, one a row.

    log_a(B u) = log_a(B) u^a + log_a(u), so a sum over classes serves all rows.
    """
    of_target = spread[target]
    if alpha.numel() == 1:
        levels = torch.where(spread > 0, log_a(spread, alpha), 0.0)
        powers = (spread * (1 + (alpha - 1) * levels)).sum()  # sum of u^alpha
        entropies = (spread * levels).sum()
    else:  # u is then even: a number
        each, count = spread.amax(), (spread > 0).sum()
        level = log_a(each, alpha)
        powers, entropies = count * each * (1 + (alpha - 1) * level), count * each * level
    sums = weighted_log(on_spread, alpha) * powers + on_spread * entropies
    small = on_spread * of_target
    at_target = weighted_log(on_class + small, alpha) - weighted_log(small, alpha)
    return (sums + at_target) / alpha
