"""The ranks that share a vocabulary: which classes each has, and all that they send, in bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.losses._output_layer import check_layer


class Collectives:
    """The collectives of a process group. Every rank of it makes the same calls in turn.

    Sums are gathered and added in order of rank: all ranks then hold the same bits, and loops that
    end on them end together.
    """

    #: Bytes that this process has handed to collectives, by every group.
    sent = 0

    def __init__(self, name: str, group: Any) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise FenchelError(
                f"{name}: expected a process group; call torch.distributed.init_process_group "
                "first, or `fy.linear_entmax_loss` in a single process."
            )
        self.name, self.group = name, group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise FenchelError(f"{name}: expected a rank of `group`, but this process is not one.")

    def largest(self, x: Tensor) -> Tensor:
        """Entry by entry over the ranks; written over ``x``."""
        return self._reduce(x, dist.ReduceOp.MAX)

    def total(self, x: Tensor) -> Tensor:
        """Entry by entry over the ranks, not bit by bit the same; written over ``x``."""
        return self._reduce(x, dist.ReduceOp.SUM)

    def gather(self, x: Tensor) -> Tensor:
        """(ranks, *x.shape)."""
        x = x.contiguous()
        out = x.new_empty((self.size, *x.shape))
        self._run(x, lambda: dist.all_gather(list(out.unbind()), x, group=self.group))
        return out

    def sums(self, x: Tensor) -> Tensor:
        """Entry by entry over the ranks, the same bits on all of them."""
        return self.gather(x).sum(0)

    def gather_lists(self, x: Tensor, sizes: list[int]) -> list[Tensor]:
        """The ``x`` of each rank; they are vectors, and all ranks know their ``sizes``."""
        sent = x.new_zeros(max(sizes))
        sent[: x.shape[0]] = x
        return [of_rank[:size] for of_rank, size in zip(self.gather(sent), sizes, strict=True)]

    def _reduce(self, x: Tensor, op: Any) -> Tensor:
        x = x.contiguous()
        self._run(x, lambda: dist.all_reduce(x, op, group=self.group))
        return x

    def _run(self, x: Tensor, collective: Callable[[], object]) -> None:
        if x.numel() == 0:  # on every rank
            return
        Collectives.sent += x.numel() * x.element_size()
        try:
            with torch.no_grad():
                collective()
        except RuntimeError as error:
            raise RuntimeError(
                f"{self.name}: rank {self.rank} of {self.size} gets no answer from the others; one "
                f"has died, raised, or is later than the group's timeout ({error})."
            ) from error


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


def agree(
    name: str, ranks: Collectives, rows: Tensor, weight: Tensor, vocab_start: Any
) -> tuple[int, int]:
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
    heard = ranks.gather(torch.tensor(said, device=rows.device)).tolist()
    if any(of_rank[2:] != heard[0][2:] for of_rank in heard):
        raise FenchelError(
            f"{name}: expected the same `hidden` on all ranks of the group, but got (rows, d, "
            f"bytes a number) {[tuple(of_rank[2:]) for of_rank in heard]}."
        )
    starts, sizes = [of_rank[0] for of_rank in heard], [of_rank[1] for of_rank in heard]
    if all(start == -1 for start in starts):
        return sum(sizes[: ranks.rank]), _some(name, sum(sizes))
    end = 0
    for start, size in sorted(zip(starts, sizes, strict=True)):
        if start != end:
            raise FenchelError(
                f"{name}: expected shards that follow each other from class 0 on, but they start "
                f"at {starts} and have {sizes} classes."
            )
        end += size
    return starts[ranks.rank], _some(name, end)


def _some(name: str, classes: int) -> int:
    if classes == 0:
        raise FenchelError(f"{name}: expected at least one class, but every shard is empty.")
    return classes
