"""Who this process is among those that train together, and what they tell each other."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist

from fenchel.runs.errors import RankError, TrainingError
from fenchel.runs.owner import is_claimed, launched

T = TypeVar("T")

# For what rank 0 does alone before training: reading files, learning a vocabulary.
STARTING = datetime.timedelta(minutes=30)


class Ranks:
    """The processes of a group. All make the same calls in turn; one alone sends nothing.

    Args:
        group: a process group on the CPU; by default that of all processes, if there is one.
        timeout: how long a rank waits for the others.
    """

    def __init__(self, group: Any = None, timeout: datetime.timedelta = STARTING) -> None:
        several = dist.is_available() and dist.is_initialized()
        self.group, self.timeout = group, timeout
        self.rank = dist.get_rank(group) if several else 0
        self.size = dist.get_world_size(group) if several else 1

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which alone writes files and speaks to people."""
        return self.rank == 0

    def shard(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's items: every ``size``-th, so that shards of sorted lengths are even."""
        return items if self.size == 1 else items[self.rank :: self.size]

    def gather_shards(self, items: list[T]) -> list[T]:
        """All items in their order, from what each rank made of its :meth:`shard`."""
        parts = self.gather(items)
        whole: list[T] = [None] * sum(map(len, parts))  # type: ignore[list-item]
        for rank, part in enumerate(parts):
            whole[rank :: self.size] = part
        return whole

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def first(self, value: T) -> T:
        """Rank 0's value."""
        return self.gather(value)[0]

    def gather_numbers(self, numbers: Sequence[float]) -> list[list[float]]:
        """The numbers of all ranks, by rank: as many on each, in float64. Cheap."""
        if self.size == 1:
            return [list(numbers)]
        mine = torch.tensor(numbers, dtype=torch.float64)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(every, mine, group=self.group)
        return [of_rank.tolist() for of_rank in every]

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """A block that all ranks pass, or none: the error of one is the error of all.

        The rank that failed (the first one, of several) raises its own error, which is the one to
        show, the others a :class:`RankError`. Nothing in the block may talk to other ranks.
        """
        if self.size == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        said = self.gather(None if error is None else str(error) or type(error).__name__)
        failed = [rank for rank, text in enumerate(said) if text is not None]
        if not failed:
            return
        if error is not None and failed[0] == self.rank:
            raise error
        raise RankError(f"rank {failed[0]}: {said[failed[0]]}") from error

    def fail(self, error: Exception) -> NoReturn:
        """Raise an error that all ranks have found: rank 0 shows it."""
        if self.leads:
            raise error
        raise RankError(f"rank 0: {error}")

    def with_timeout(self, minutes: float) -> Ranks:
        """The same ranks, which wait for each other no longer than ``minutes``."""
        if self.size == 1:
            return self
        timeout = datetime.timedelta(minutes=minutes)
        return Ranks(_new_group("gloo", timeout), timeout)

    def group_on(self, device: torch.device) -> Any:
        """Their process group for tensors on a device; what they say goes over the CPU's."""
        return _new_group("nccl", self.timeout) if device.type == "cuda" else self.group


class Agreement:
    """One small message a step. One process alone agrees with itself at any time.

    Args:
        ranks: those that train together.
        elapsed: seconds that the run has taken so far, as the checkpoint has it.
    """

    def __init__(self, ranks: Ranks, elapsed: float) -> None:
        self._ranks = ranks
        self._elapsed, self._asked = elapsed, False

    def on_step(
        self, loss: float, tokens: int, *, asked: bool, elapsed: float
    ) -> tuple[float, int]:
        """The mean loss per token and the tokens of all ranks, from this rank's own."""
        if self._ranks.size == 1:
            return loss, tokens
        heard = self._ranks.gather_numbers((tokens, loss * tokens, asked, elapsed))
        counts, losses, stops, clocks = zip(*heard, strict=True)
        self._asked, self._elapsed = any(stops), clocks[0]
        return sum(losses) / max(sum(counts), 1), int(sum(counts))

    def on_stop(self, *, asked: bool, elapsed: float) -> tuple[bool, float]:
        """Whether any rank was asked to stop, and rank 0's clock: as of the last step."""
        return (asked, elapsed) if self._ranks.size == 1 else (self._asked, self._elapsed)


def is_own_restart(run_dir: Path, ranks: Ranks) -> bool:
    """Whether ``torchrun`` has restarted the ranks, whose job had begun the run in ``run_dir``.

    Of several machines, only the one whose rank has died counts its restarts.
    """
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    heard = ranks.gather((count != "0", is_claimed(run_dir)))
    return any(restarted for restarted, _ in heard) and heard[0][1]


@contextmanager
def join_ranks() -> Iterator[Ranks]:
    """The ranks of this job: of the process group there is, or else of ``torchrun``, or one alone.

    A group that is made here is taken down at the end, whatever happens.
    """
    if not launched() or dist.is_initialized():
        yield Ranks()
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=STARTING))
    # torchrun may keep its store over restarts, and with it the addresses of ranks that are dead
    # (https://github.com/pytorch/pytorch/issues/135712). All ranks are restarted together, so each
    # counts its own starts; torchrun's count is that of one machine alone.
    start = store.add(f"fenchel/starts/{rank}", 1)
    store = PrefixStore(f"fenchel/start-{start}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=STARTING)
    try:
        yield Ranks()
    finally:
        dist.destroy_process_group()


@contextmanager
def explain_loss_of(ranks: Ranks) -> Iterator[None]:
    """Say in one sentence that another rank has gone, which a collective says in many."""
    try:
        yield
    except TrainingError:
        raise
    except RuntimeError as error:
        if ranks.size == 1 or not _is_connection(error):
            raise
        minutes = ranks.timeout.total_seconds() / 60
        raise TrainingError(
            f"rank {ranks.rank} of {ranks.size} gets no answer from the others: one has ended, or "
            f"is late by more than timeout_minutes = {minutes:g}; start again to go on from the "
            f"last checkpoint."
        ) from error


# By backend and timeout, with the group of all processes that they were made in. They are kept for
# the next run: DTensor remembers the groups of a mesh, and takes equal meshes for one.
_groups: dict[tuple[str, datetime.timedelta], tuple[Any, Any]] = {}


def _new_group(backend: str, timeout: datetime.timedelta) -> Any:
    world = dist.group.WORLD
    known = _groups.get((backend, timeout))
    if known is None or known[0] is not world:
        known = (world, dist.new_group(timeout=timeout, backend=backend))
        _groups[backend, timeout] = known
    return known[1]


def _is_connection(error: RuntimeError) -> bool:
    text = str(error)
    named = isinstance(error, getattr(dist, "DistError", ()))
    return named or "gloo" in text or "gets no answer from the others" in text
