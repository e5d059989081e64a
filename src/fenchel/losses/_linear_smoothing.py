r"""Label smoothing of an output layer's loss, from products that are small.

Against the target :math:`q = A e_y + B u` (u spreads over the open classes, times their weights)

.. math:: L(\theta; q) = L(\theta; e_y) + \Omega(q) + (1 - A) \theta_y - B \langle \theta, u
    \rangle,

and :math:`\langle \theta, u \rangle` needs one product with :math:`W^\top u`, not all logits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.kernels import IGNORED
from fenchel.regularizers.tsallis_curve import LARGE, log_a, weighted_log


def smoothing_term(
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
    """The weighted losses against smoothed targets, from those against the classes."""
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
    score, mean = _scores(hidden, weight, bias, known, spread)
    own = _omega(on_class, on_spread, spread, known, alpha.to(dtype).clamp(max=LARGE))
    value = losses + own + (1 - on_class) * score - on_spread * mean
    value = torch.where(value < 0, value - value.detach(), value)  # rounding
    return (total * value).masked_fill(ignored, 0.0)


def _scores(
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


def _omega(
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
