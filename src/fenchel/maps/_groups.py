r"""What fusedmax and oscarmax share: groups, their derivative, and the torch op around them.

The map is :math:`p = P_\triangle(z)`, where the levels :math:`z` are equal within groups. In the
scores a level moves with the mean of its group, and p with the levels on the support less their
mean: both are projections that commute, so the Jacobian is symmetric. In :math:`\lambda` a level
moves at a known slope.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import check_parameter_tensor, check_scores, check_wide, is_transformed
from fenchel._dtypes import Parameter
from fenchel.maps._family import as_tensor, batch_in_front, fused_backward

_Found = tuple[Tensor, Tensor, Tensor]


def _registered_op(op: str) -> Any:
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


class Groups:
    """A map ``scores, lam -> p`` along ``dim`` that fuses entries, known to torch in every mode.

    Args:
        op: name of the forward kernel, and of the registered op.
    """

    def __init__(self, op: str) -> None:
        self.op = op
        self.registered = _registered_op(op)

    def __call__(self, scores: Tensor, lam: Parameter, dim: int) -> Tensor:
        """The map, for float32 or float64 ``scores``, through the cheapest door that serves."""
        is_last = dim == scores.dim() - 1
        rows = scores if is_last else scores.movedim(dim, -1)
        if isinstance(lam, Tensor):
            lam = lam.to(rows.device).movedim(dim, -1)
        if is_transformed():
            p = _linearised(self.registered, rows, lam)
        elif not isinstance(lam, Tensor) and kernels.is_plain(rows):
            p = _NumberPenalty.apply(rows, lam, self.op)
        else:
            p = self.registered(rows, as_tensor(lam, rows))[0]
        return p if is_last else p.movedim(-1, dim)


def _linearised(op: Any, scores: Tensor, lam: Parameter) -> Tensor:
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
