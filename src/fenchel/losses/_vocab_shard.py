"""Which classes this rank has: explicit shards or DTensors, checked against the other ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.losses._linear_shapes import check_layer
from fenchel.losses._vocab_wire import Wire


def is_dtensor(x: Any) -> bool:
    """Whether ``x`` is a DTensor; torch's module for them takes long to import."""
    return isinstance(x, Tensor) and hasattr(x, "device_mesh")


def local_shard(
    name: str, weight: Any, bias: Any, group: Any, vocab_start: Any
) -> tuple[Any, Any, Any, Any]:
    """Weight and bias of this rank as plain tensors, the group, and the first class (or None)."""
    if not is_dtensor(weight):
        if is_dtensor(bias):
            raise FenchelError(
                f"{name}: expected `bias` to be sharded as `weight` is, but only `bias` is a "
                "DTensor."
            )
        return weight, bias, group, vocab_start
    if group is not None or vocab_start is not None:
        raise FenchelError(
            f"{name}: expected no `group` and no `vocab_start` with a DTensor, which knows both."
        )
    for label, x in (("weight", weight), ("bias", bias)):
        if x is None:
            continue
        if not is_dtensor(x) or x.device_mesh != weight.device_mesh:
            raise FenchelError(f"{name}: expected `{label}` to be a DTensor on the weight's mesh.")
        if len(x.placements) != 1 or not x.placements[0].is_shard(0):
            raise FenchelError(
                f"{name}: expected `{label}` to be sharded along dim 0 of a mesh of one dimension "
                f"(`mesh['tp']` of a larger one), but got placements {tuple(x.placements)}."
            )
    mesh = weight.device_mesh
    each = -(-weight.shape[0] // mesh.size())
    start = min(mesh.get_local_rank() * each, weight.shape[0])
    bias = None if bias is None else bias.to_local()
    return weight.to_local(), bias, mesh.get_group(), start


def replicated(name: str, label: str, x: Any) -> Any:
    """A DTensor that all ranks have in full, as a plain tensor."""
    if not is_dtensor(x):
        return x
    if not all(placement.is_replicate() for placement in x.placements):
        raise FenchelError(
            f"{name}: expected `{label}` to be the same on all ranks, but got placements "
            f"{tuple(x.placements)}; call `{label}.redistribute(placements=[Replicate()])` first."
        )
    return x.to_local()


def check_shard(name: str, hidden: Any, weight: Any, bias: Any) -> Tensor:
    """As :func:`check_layer`, but a shard may be empty."""
    if isinstance(weight, Tensor) and weight.dim() == 2 and weight.shape[0] == 0:
        if bias is not None and isinstance(bias, Tensor) and bias.shape == (0,):
            bias = bias.new_zeros(1)
        weight = weight.new_zeros(1, weight.shape[1])
    return check_layer(name, hidden, weight, bias)


def agree(name: str, wire: Wire, rows: Tensor, weight: Tensor, vocab_start: Any) -> tuple[int, int]:
    """The first class of this rank and the number of all classes, once all ranks agree."""
    if vocab_start is not None and (
        isinstance(vocab_start, bool) or not isinstance(vocab_start, int) or vocab_start < 0
    ):
        raise FenchelError(
            f"{name}: expected `vocab_start` to be the index of this rank's first class, but got "
            f"{vocab_start!r}."
        )
    said = [-1 if vocab_start is None else vocab_start, weight.shape[0], *rows.shape]
    said.append(rows.element_size())
    heard = wire.gather(torch.tensor(said, device=rows.device)).tolist()
    if any(of_rank[2:] != heard[0][2:] for of_rank in heard):
        raise FenchelError(
            f"{name}: expected the same `hidden` on all ranks of the group, but got (rows, d, "
            f"bytes a number) {[tuple(of_rank[2:]) for of_rank in heard]}."
        )
    starts, sizes = [of_rank[0] for of_rank in heard], [of_rank[1] for of_rank in heard]
    if all(start == -1 for start in starts):
        return sum(sizes[: wire.rank]), _some(name, sum(sizes))
    end = 0
    for start, size in sorted(zip(starts, sizes, strict=True)):
        if start != end:
            raise FenchelError(
                f"{name}: expected shards that follow each other from class 0 on, but they start "
                f"at {starts} and have {sizes} classes."
            )
        end += size
    return starts[wire.rank], _some(name, end)


def _some(name: str, classes: int) -> int:
    if classes == 0:
        raise FenchelError(f"{name}: expected at least one class, but every shard is empty.")
    return classes
