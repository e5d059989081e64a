"""The scores that have given means: the gradient of an Ω that is known by its conjugate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

#: Scores (instances, parts) to the conjugate (instances) and its gradient, which has a graph.
Conjugate = Callable[[Tensor], tuple[Tensor, Tensor]]

_SHARE = 1e-10  # of a mean, the part of it that may be left
_SHRINKS = 40  # halvings of a step before it is given up


@dataclass(frozen=True)
class DualPoint:
    r"""Where :math:`\Omega(\mu) = \sup_\theta \langle \theta, \mu \rangle - \Omega^*(\theta)` is.

    Args:
        scores: θ, the gradient of Ω at μ, where it is one.
        value: Ω(μ) from below; the error is of second order in ``residual`` inside the domain.
        residual: the most that a mean of θ is off μ.
        iterations: how many Newton steps were taken, of all instances together.
    """

    scores: Tensor  # shape: (instances, parts)
    value: Tensor  # shape: (instances)
    residual: Tensor  # shape: (instances)
    iterations: int


def dual_point(
    conjugate: Conjugate, means: Tensor, start: Tensor, *, max_iter: int = 500, tol: float = 1e-13
) -> DualPoint:
    """Newton's method on all instances at once, its systems solved by conjugate gradients.

    A mean on the boundary has its scores at infinity. The value converges there all the same: by a
    constant factor in each step, as far as float64 goes.

    Args:
        conjugate: Ω* with its gradient, which must have a graph for the second derivative.
        means: μ (instances, parts), float64.
        start: where to begin; parts at ``-inf`` stay there.
        max_iter: the most steps.
        tol: the residual at which an instance is done.
    """
    free = start > -torch.inf
    scores = start.clone()
    value, mean, leaf = _at(conjugate, scores, means, free)
    live = torch.ones(len(means), dtype=torch.bool)
    steps = 0
    while True:
        left = torch.where(free, means - mean.detach(), 0.0)
        residual, share = _sizes(left, means)
        # A rare part has scores that only its own digits tell.
        live = live & ((residual > tol) | (share > max(tol, _SHARE)))
        if not bool(live.any()) or steps == max_iter:
            return DualPoint(scores, value, residual, steps)
        steps += 1
        # The damping goes to 0 with the residual, and with it the step becomes Newton's own.
        damping = (0.1 * residual).clamp(min=1e-14)
        step = _solve(mean, leaf, torch.where(live.unsqueeze(1), left, 0.0), damping, free)
        slope = (left * step).sum(1)
        length = torch.ones_like(value)
        moved = torch.zeros_like(live)
        for _ in range(_SHRINKS):
            wanted = live & ~moved
            if not bool(wanted.any()):
                break
            shift = torch.where(wanted.unsqueeze(1), length.unsqueeze(1) * step, 0.0)
            trial = torch.where(free, scores + shift, scores)
            with torch.no_grad():
                at, there = conjugate(trial)
            at = _value(at, trial, means, free)
            better = (at >= value + 1e-4 * length * slope) & (at > value)
            # Near the end the value moves less than it rounds, and the residual still tells.
            closer = _sizes(torch.where(free, means - there, 0.0), means)[1] < 0.5 * share
            better = wanted & (better | (closer & (at >= value - 1e-14 * (1 + value.abs()))))
            scores = torch.where(better.unsqueeze(1), trial, scores)
            moved = moved | better
            length = torch.where(better, length, 0.5 * length)
        live = live & moved  # others have come as close as rounding lets them
        value, mean, leaf = _at(conjugate, scores, means, free)


def _sizes(left: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of what is left (instances), and the largest share of a mean that is left."""
    if left.shape[1] == 0:
        return left.new_zeros(len(left)), left.new_zeros(len(left))
    left = left.abs()
    return left.amax(1), (left / torch.where(means > 0, means, 1.0)).amax(1)


def _at(
    conjugate: Conjugate, scores: Tensor, means: Tensor, free: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The dual's value at scores, and the mean with the leaf of its graph."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = scores.detach().clone().requires_grad_()
        value, mean = conjugate(leaf)
    return _value(value.detach(), scores, means, free), mean, leaf


def _value(conjugate: Tensor, scores: Tensor, means: Tensor, free: Tensor) -> Tensor:
    return torch.where(free & (means != 0), scores * means, 0.0).sum(1) - conjugate


def _solve(mean: Tensor, leaf: Tensor, right: Tensor, damping: Tensor, free: Tensor) -> Tensor:
    """Conjugate gradients for the Jacobian of the mean, which is Ω*'s Hessian, plus damping.

    In units of the means: near 0 the Hessian's diagonal is like them.
    """
    known = mean.detach()
    unit = torch.where(known > 0, known, 1.0)
    x = torch.zeros_like(right)
    r, p = right, right / unit
    size = (r * p).sum(1)
    enough = size * (0.1 * size.sqrt()).clamp(max=0.25, min=1e-12) ** 2
    for _ in range(2 * right.shape[1] + 10):
        live = size > enough
        if not bool(live.any()):
            break
        turned = torch.zeros_like(p)
        if mean.requires_grad:
            (turned,) = torch.autograd.grad(mean, leaf, p, retain_graph=True)
        turned = torch.where(free, turned, 0.0) + damping.unsqueeze(1) * unit * p
        along = (p * turned).sum(1)
        length = torch.where(live & (along > 0), size / along.clamp(min=1e-300), 0.0).unsqueeze(1)
        x = x + length * p
        r = r - length * turned
        next_way = r / unit
        old, size = size, torch.where(live & (along > 0), (r * next_way).sum(1), 0.0)
        p = next_way + (size / old.clamp(min=1e-300)).unsqueeze(1) * p
    return x
