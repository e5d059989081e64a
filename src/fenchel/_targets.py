"""Targets: class indices or probabilities, checked once, in one voice."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import INTEGERS, FenchelError
from fenchel.kernels import IGNORED

_BLOCK = 2**20  # how many entries are held in float64 at a time


def is_index(target: Tensor) -> bool:
    """Whether a checked target holds class indices (else probabilities)."""
    return not target.is_floating_point()


def check_target(
    name: str, target: Any, scores: Tensor, dim: int, *, label: str = "scores", index: bool = False
) -> Tensor:
    """Check type, shape and device of a target; class indices come back as int64.

    Args:
        name: who asks.
        target: class indices or probabilities.
        scores: what they are the target of, named ``label`` in messages.
        dim: the axis of the classes, not negative.
        label: the argument that holds the scores.
        index: whether only class indices will do.
    """
    if not isinstance(target, Tensor):
        raise FenchelError(
            f"{name}: expected `target` to be a torch.Tensor, but got {type(target).__name__}."
        )
    target = kernels.unwrapped(target)
    if target.dtype not in INTEGERS and (index or not target.is_floating_point()):
        floating = "" if index else " or probabilities (floating)"
        raise FenchelError(
            f"{name}: expected `target` of class indices (int64){floating}, but got {target.dtype}."
        )
    if target.device != scores.device:
        raise FenchelError(
            f"{name}: expected `target` on the device of `{label}` ({scores.device}), but it is on "
            f"{target.device}."
        )
    rows = scores.shape[:dim] + scores.shape[dim + 1 :]
    if target.is_floating_point():
        if target.shape != scores.shape:
            raise FenchelError(
                f"{name}: expected a floating `target` (probabilities) of the shape of `{label}` "
                f"{tuple(scores.shape)}, but got {tuple(target.shape)}; class indices must be "
                "int64."
            )
        return target
    if target.shape != rows:
        raise FenchelError(
            f"{name}: expected `target` of class indices of shape {tuple(rows)} (`{label}` of "
            f"shape {tuple(scores.shape)} without dim {dim}), but got {tuple(target.shape)}."
        )
    return target.long()


def check_indices(name: str, target: Tensor, n: int) -> Tensor:
    """``target``, checked to hold class indices in [0, n - 1], or ``IGNORED``.

    Where its values cannot be read now, because torch traces, compiles or transforms, the check
    becomes part of what is recorded. On a GPU nothing is read: torch's own kernels refuse there.
    """
    if target.device.type != "cpu":
        return target
    if is_readable(target):
        kernels.check_classes(name, target, n)
        return target
    return _checked_classes(target, n, name)


@torch.library.custom_op("fenchel::checked_classes", mutates_args=())
def _checked_classes(target: Tensor, n: int, name: str) -> Tensor:
    """A copy of class indices, if all are in range."""
    if target.dtype != torch.int64:
        raise FenchelError(f"{name}: expected class indices of int64, but got {target.dtype}.")
    kernels.check_classes(name, target, n)
    return target.clone(memory_format=torch.contiguous_format)


@_checked_classes.register_fake
def _(target: Tensor, n: int, name: str) -> Tensor:
    return torch.empty_like(target, memory_format=torch.contiguous_format)


@_checked_classes.register_vmap
def _(info: Any, in_dims: Any, target: Tensor, n: int, name: str) -> tuple[Tensor, int]:
    return _checked_classes(target, n, name), in_dims[0]


def check_probabilities(
    name: str,
    p: Tensor,
    label: str = "target",
    kept: Tensor | None = None,
    remedy: str = "divide by the sum",
) -> None:
    """Check, on the CPU, that rows along the last axis are distributions.

    Args:
        name: who asks.
        p: (*rows, n).
        label: the argument that holds them.
        kept: boolean (*rows), the rows to look at; all, if None.
        remedy: what to do about a row with another sum.
    """
    if not is_readable(p) or p.numel() == 0:
        return
    n = p.shape[-1]
    # Half precision rounds each entry, and those near 0 by a fixed amount.
    info = torch.finfo(p.dtype)
    allowed = 4 * info.eps + n * info.tiny * info.eps if info.bits == 16 else 1e-3
    rows = p.detach().reshape(-1, n)
    lowest = rows.amin(-1)
    # Block by block, because torch makes a float64 copy of what it sums.
    blocks = rows.split(max(1, _BLOCK // n))
    totals = torch.cat([block.sum(-1, dtype=torch.float64) for block in blocks])
    wrong = ~((lowest >= 0) & ((totals - 1).abs() <= allowed))
    if kept is not None:
        wrong &= kept.reshape(-1)
    if bool(wrong.any()):
        row = int(wrong.long().argmax())
        low, total = float(lowest[row]), float(totals[row])
        found = f"has an entry of {low:g}" if low < 0 else f"sums to {total:g}"
        raise FenchelError(
            f"{name}: expected probabilities that sum to 1 along the class axis of `{label}`, but "
            f"row {row} {found}; {remedy}."
        )


def one_hot(target: Tensor, like: Tensor) -> Tensor:
    """Class indices as vectors along a last axis, in the dtype of ``like`` (*rows, n).

    An ignored row is that of class 0; another wrong index is torch's to refuse.
    """
    known = torch.where(target == IGNORED, 0, target).unsqueeze(-1)
    return torch.zeros_like(like).scatter(-1, known, 1.0)


def is_readable(target: Tensor) -> bool:
    """Whether reading values costs no wait for a device and no graph break."""
    return target.device.type == "cpu" and kernels.is_plain(target)
