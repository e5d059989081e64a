r"""What fusedmax and oscarmax share: groups, their derivative, and the torch op around them.

The map is :math:`p = P_\triangle(z)`, where the levels :math:`z` are equal within groups. In the
scores a level moves with the mean of its group, and p with the levels on the support less their
mean: both are projections that commute, so the Jacobian is symmetric. In :math:`\lambda` a level
moves at a known slope.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import (
    FenchelError,
    check_mask,
    check_parameter,
    check_parameter_tensor,
    check_scores,
    check_wide,
    is_transformed,
)
from fenchel.maps._family import as_tensor, batch_in_front, fused_backward

_Found = tuple[Tensor, Tensor, Tensor]


def register(op: str) -> Any:
    """The map ``op`` as ``fenchel::<op>``: (scores, lam) to (p, groups, slopes), last axis."""

    @torch.library.custom_op(
        f"fenchel::{op}",
        mutates_args=(),
        schema="(Tensor scores, Tensor lam) -> (Tensor, Tensor, Tensor)",
    )
    def run(scores: Tensor, lam: Tensor) -> _Found:
        check(scores, lam)
        value = float(lam) if lam.numel() == 1 else lam
        p, group, slope = kernels.run_groups(op, scores.contiguous(), value)
        assert slope is not None
        return p, group, slope

    def check(scores: Tensor, lam: Tensor) -> None:
        dim = check_scores(op, scores, -1)
        check_wide(op, scores=scores)
        check_parameter_tensor(op, "lam", lam, scores, dim)

    @run.register_fake
    def shape(scores: Tensor, lam: Tensor) -> _Found:
        check(scores, lam)
        like = torch.empty_like(scores, memory_format=torch.contiguous_format)
        return like, torch.empty_like(like, dtype=torch.int32), torch.empty_like(like)

    def save(ctx: Any, inputs: tuple[Any, ...], output: _Found) -> None:
        ctx.save_for_backward(*output, inputs[1])
        ctx.mark_non_differentiable(output[1], output[2])

    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, Tensor | None]:
        p, group, slope, lam = ctx.saved_tensors
        for_lam = None
        if ctx.needs_input_grad[1]:
            moved = (centred(p, grad) * slope).sum(-1, keepdim=True)
            for_lam = moved.sum_to_size(lam.shape).to(lam.dtype)
        return jacobian_product(p, group, grad), for_lam

    def vmap(info: Any, in_dims: Any, scores: Tensor, lam: Tensor) -> Any:
        return run(*batch_in_front(info, (*in_dims, None), scores, lam)), (0, 0, 0)

    run.register_autograd(backward, setup_context=save)
    run.register_vmap(vmap)
    return run


def apply(
    name: str,
    op: Any,
    scores: Tensor,
    lam: Any,
    gamma: Any,
    dim: int,
    mask: Tensor | None,
    lengths: Tensor | None,
) -> Tensor:
    """Check, mask, scale and run a map on scores of any floating dtype along ``dim``."""
    dim = check_scores(name, scores, dim, may_be_empty=True)
    if mask is not None:
        check_mask(name, mask, scores)
        scores = scores.masked_fill(~mask, -math.inf)
    if scores.dim() == 0:  # as in torch.softmax, a number is a row of one entry
        row = scores.unsqueeze(0)
        return apply(name, op, row, lam, gamma, 0, None, lengths).squeeze(0)
    if lengths is not None:
        scores = scores.masked_fill(~_within(name, lengths, scores, dim), -math.inf)
    penalty = check_parameter(name, "lam", lam, scores, dim, 0.0, "(0 is sparsemax)")
    scale = check_parameter(name, "gamma", gamma, scores, dim, 0.0, "(and above it)")
    if not isinstance(scale, Tensor) and not 0 < scale < math.inf:
        raise FenchelError(f"{name}: `gamma` must be a finite number above 0; got {gamma!r}.")
    if scores.shape[dim] == 0:  # and a row may have none
        return scores.clone()
    dtype = scores.dtype
    wide = scores.float() if dtype.itemsize == 2 else scores
    if isinstance(scale, Tensor) or scale != 1:
        top = wide.detach().amax(dim, keepdim=True)
        wide = (wide - torch.where(top == -math.inf, 0.0, top)) / scale
    is_last = dim == wide.dim() - 1
    wide = wide if is_last else wide.movedim(dim, -1)
    if isinstance(penalty, Tensor):
        penalty = penalty.to(wide.device).movedim(dim, -1)
    if is_transformed():
        p = _linearised(op, wide, penalty)
    elif not isinstance(penalty, Tensor) and kernels.is_plain(wide):
        p = _NumberPenalty.apply(wide, penalty, name)
    else:
        p = op(wide, as_tensor(penalty, wide))[0]
    p = p if is_last else p.movedim(-1, dim)
    return p if p.dtype == dtype else p.to(dtype)


def _linearised(op: Any, scores: Tensor, lam: float | Tensor) -> Tensor:
    """The map as the linear function that it is around its input, in plain torch.

    For torch.func and forward mode, which cannot look into the registered op.
    """
    known = scores.detach()
    fixed = as_tensor(lam, scores).detach()
    p, group, slope = op(known, fixed)
    step = torch.where(known.isfinite(), scores - known, 0.0)  # 0, with scores' derivative
    moved = jacobian_product(p, group, step)
    if isinstance(lam, Tensor):
        moved = moved + centred(p, slope * (lam - fixed)).to(p.dtype)
    return p + moved


class _NumberPenalty(torch.autograd.Function):
    """The eager door: a third of the registered op's overhead, and no slopes in lam."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lam: float, op: str) -> Tensor:
        p, group, _ = kernels.run_groups(op, scores.contiguous(), lam, with_slope=False)
        ctx.save_for_backward(p, group)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        p, group = ctx.saved_tensors
        return jacobian_product(p, group, grad), None, None


def centred(p: Tensor, grad: Tensor) -> Tensor:
    """``grad`` on the support less its mean there, 0 off it: sparsemax's derivative."""
    inside = p != 0
    known = torch.where(inside, grad, 0.0)
    size = inside.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(inside, known - known.sum(-1, keepdim=True) / size, 0.0)


def jacobian_product(p: Tensor, group: Tensor, grad: Tensor) -> Tensor:
    """The Jacobian at output p with these groups times ``grad``."""
    kernel = fused_backward("groups.backward", p, grad)
    if kernel is not None:
        fused: Tensor = kernel(p, group, grad)
        return fused
    moved = centred(p, grad)
    index = group.long().clamp(min=0)
    zeros = torch.zeros_like(moved)
    sums = zeros.scatter_add(-1, index, moved)  # a masked entry adds 0 to the first group
    sizes = zeros.scatter_add(-1, index, (group >= 0).to(moved.dtype))
    mean = (sums / sizes.clamp(min=1)).gather(-1, index)
    return torch.where(group >= 0, mean, p - p)


def _within(name: str, lengths: Any, scores: Tensor, dim: int) -> Tensor:
    """True for the first ``lengths`` entries of each row."""
    rows = scores.shape[:dim] + scores.shape[dim + 1 :]
    fits = isinstance(lengths, Tensor) and not lengths.is_floating_point()
    if not fits or lengths.dtype == torch.bool or lengths.shape not in (rows, rows[:1]):
        got = tuple(lengths.shape) if isinstance(lengths, Tensor) else type(lengths).__name__
        raise FenchelError(
            f"{name}: expected `lengths` to be an integer tensor of shape {tuple(rows)} or "
            f"{tuple(rows[:1])}, but got {got}."
        )
    if lengths.dim() < len(rows):
        lengths = lengths.reshape(-1, *(1,) * (len(rows) - 1))
    places = torch.arange(scores.shape[dim], device=scores.device)
    shape = [1] * scores.dim()
    shape[dim] = -1
    return places.reshape(shape) < lengths.to(scores.device).unsqueeze(dim)
