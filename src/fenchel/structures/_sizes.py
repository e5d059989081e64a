"""Lengths of the instances of a batch, checked once, in one voice."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.structures.problem import refuse_unreadable


def check_sizes(
    name: str, lengths: Any, batch_shape: torch.Size, most: tuple[int, ...], least: int = 1
) -> Tensor:
    """``lengths`` as (instances, len(most)) int64 on the CPU; without them, the full sizes.

    Args:
        name: who asks.
        lengths: integers of shape (*batch), or (*batch, len(most)) where that is not 1.
        batch_shape: the axes of the batch.
        most: the sizes of a full instance.
        least: the smallest size that is allowed.
    """
    instances = math.prod(batch_shape)
    full = torch.tensor(most, dtype=torch.int64)
    if lengths is None:
        return full.expand(instances, len(most)).contiguous()
    shape = tuple(batch_shape) if len(most) == 1 else (*batch_shape, len(most))
    fits = isinstance(lengths, Tensor) and not lengths.is_floating_point()
    if not fits or lengths.dtype == torch.bool or tuple(lengths.shape) != shape:
        got = tuple(lengths.shape) if isinstance(lengths, Tensor) else type(lengths).__name__
        kind = lengths.dtype if isinstance(lengths, Tensor) else ""
        raise FenchelError(
            f"{name}: expected `lengths` to be an integer tensor of shape {shape}, but got {got} "
            f"{kind}".rstrip()
            + "."
        )
    refuse_unreadable(lengths)
    sizes = lengths.detach().long().cpu().reshape(instances, len(most))
    if bool((sizes < least).any() | (sizes > full).any()):
        raise FenchelError(
            f"{name}: expected `lengths` between {least} and {most if len(most) > 1 else most[0]}, "
            f"but got {sizes.amin() if bool((sizes < least).any()) else sizes.amax()}."
        )
    return sizes.contiguous()
