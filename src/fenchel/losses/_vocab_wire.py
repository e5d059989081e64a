"""All that crosses the wire between the ranks that share a vocabulary, counted in bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fenchel._checks import FenchelError


class Wire:
    """The collectives of a process group. Every rank of it makes the same calls in turn.

    Sums are gathered and added in order of rank: all ranks then hold the same bits, and loops that
    end on them end together.
    """

    #: Bytes that this process has handed to collectives, by every wire.
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
        Wire.sent += x.numel() * x.element_size()
        try:
            with torch.no_grad():
                collective()
        except RuntimeError as error:
            raise RuntimeError(
                f"{self.name}: rank {self.rank} of {self.size} gets no answer from the others; one "
                f"has died, raised, or is later than the group's timeout ({error})."
            ) from error
