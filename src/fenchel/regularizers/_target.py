"""Targets: class indices or probabilities, checked once, in one voice."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import INTEGERS, FenchelError
from fenchel.kernels import IGNORED


def is_index(target: Tensor) -> bool:
    """Whether a checked target holds class indices (else probabilities)."""
    return not target.is_floating_point()


def check_target(name: str, target: Any, scores: Tensor, dim: int) -> Tensor:
    """Check type, shape and device of a target; class indices come back as int64."""
    if not isinstance(target, Tensor):
        raise FenchelError(
            f"{name}: expected `target` to be a torch.Tensor, but got {type(target).__name__}."
        )
    target = kernels.unwrapped(target)
    if target.dtype not in INTEGERS and not target.is_floating_point():
        raise FenchelError(
            f"{name}: expected `target` of class indices (int64) or probabilities (floating), but "
            f"got {target.dtype}."
        )
    if target.device != scores.device:
        raise FenchelError(
            f"{name}: expected `target` on the device of `scores` ({scores.device}), but it is on "
            f"{target.device}."
        )
    rows = scores.shape[:dim] + scores.shape[dim + 1 :]
    if target.is_floating_point():
        if target.shape != scores.shape:
            raise FenchelError(
                f"{name}: expected a floating `target` (probabilities) of the shape of `scores` "
                f"{tuple(scores.shape)}, but got {tuple(target.shape)}; class indices must be "
                "int64."
            )
        return target
    if target.shape != rows:
        raise FenchelError(
            f"{name}: expected `target` of class indices of shape {tuple(rows)} (`scores` of shape "
            f"{tuple(scores.shape)} without dim {dim}), but got {tuple(target.shape)}."
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


def check_probabilities(name: str, target: Tensor) -> None:
    """Check, on the CPU, that targets along the last axis are distributions."""
    if not is_readable(target) or target.numel() == 0:
        return
    values = target.detach()
    lowest = float(values.amin())
    if lowest < 0:
        raise FenchelError(
            f"{name}: expected probabilities in `target`, but one of them is {lowest:g}."
        )
    totals = values.sum(-1, dtype=torch.float64).flatten()
    coarse = torch.finfo(target.dtype).eps * 4 if target.dtype.itemsize == 2 else 1e-3
    wrong = ~((totals - 1).abs() <= coarse)
    if bool(wrong.any()):
        row = int(wrong.long().argmax())
        raise FenchelError(
            f"{name}: expected probabilities that sum to 1 along the class axis of `target`, but "
            f"row {row} sums to {float(totals[row]):g}; divide by the sum."
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
