"""A batch of small instances of a structure, with all their members: what the checks look at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.structures import Structure
from fenchel.structures.problem import Problem
from fenchel.testing._failure import CheckFailed, expect

#: The smoothed maximum by ``"l2"`` of instance ``row``, from its scores (parts,) and gamma, in
#: plain torch: another program than the structure's own.
Recursion = Callable[[Problem, Tensor, int, float], Tensor]

_known: dict[Any, Tensor] = {}


@dataclass(frozen=True)
class StructureCase:
    """Scores of a batch of instances in the user's form, with lengths and a mask."""

    name: str
    structure: Structure
    scores: Any
    lengths: Tensor | None = None
    mask: Tensor | None = None
    recursion: Recursion | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def sizes(self) -> dict[str, Tensor | None]:
        """What goes with the scores in a call."""
        return {"lengths": self.lengths, "mask": self.mask}

    @property
    def problem(self) -> Problem:
        return self.structure.problem("check", self.scores, self.lengths, self.mask)

    @property
    def batch_shape(self) -> torch.Size:
        return self.problem.batch_shape

    @property
    def can_be_listed(self) -> bool:
        """Whether the structure enumerates its members."""
        try:
            next(iter(self.structure.enumerate(self.problem, 0)), None)
        except FenchelError:
            return False
        return True

    def members(self) -> list[Tensor]:
        """The counts (members, parts) of what is possible in each instance."""
        problem = self.problem
        finite = []
        for at, row in enumerate(problem.scores.detach()):
            rows = counts(self.structure, problem, at)
            finite.append(rows[~((rows > 0) & (row == -math.inf)).any(1)])
            expect(
                len(finite[-1]) > 0,
                f"expected a member of instance {at} without a masked part, but `enumerate` lists "
                "none",
            )
        return finite

    def targets(self, seed: int = 0) -> tuple[Any, Tensor]:
        """A member of each instance, drawn at random: in its natural form, and as counts."""
        rng = torch.Generator().manual_seed(seed)
        if self.can_be_listed:
            chosen = [
                rows[int(torch.randint(len(rows), (), generator=rng))] for rows in self.members()
            ]
        else:  # the best for other scores
            problem = self.problem
            drawn = torch.randn(problem.scores.shape, generator=rng, dtype=torch.float64)
            drawn = torch.where(problem.scores == -math.inf, -math.inf, drawn)
            chosen = list(problem.indicator(self.structure.best_parts(problem, drawn)))
        return self.natural(chosen), torch.stack(chosen)

    def natural(self, chosen: list[Tensor]) -> Any:
        """Members, as counts, in their natural form; garbage where anything may be."""
        problem = self.problem
        lists = [torch.arange(len(y)).repeat_interleave(y.long()) for y in chosen]
        parts = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=-1)
        target = self.structure.to_target(problem, parts)
        if self.lengths is not None and self.structure.event_dim >= 2:
            # One entry for each position: those behind the length are not looked at.
            positions = (
                problem.batch_shape + blocks(self.scores)[0].shape[-self.structure.event_dim :][:1]
            )
            if isinstance(target, Tensor) and target.shape == positions:
                there = torch.arange(target.shape[-1]) < problem.sizes[:, :1]
                target = torch.where(there.reshape(target.shape), target, 77)
        return target

    def leaves(self) -> Any:
        """A copy of the scores that wants gradients."""
        return rebuild(self.scores, [x.clone().requires_grad_() for x in blocks(self.scores)])

    def flat(self, means: Any) -> Tensor:
        """Means in the user's form as (instances, parts)."""
        count = math.prod(self.batch_shape)
        return torch.cat([x.reshape(count, -1) for x in blocks(means)], 1)

    def padding(self) -> list[Tensor | None]:
        """For each block of the scores where there is padding: what a problem sets to 0."""
        ones = rebuild(self.scores, [torch.ones_like(x) for x in blocks(self.scores)])
        problem = self.structure.problem("check", ones, self.lengths)
        found = blocks(problem.restore((problem.scores == 0).double()))
        own = zip(found, blocks(self.scores), strict=True)
        return [at > 0 if at.shape == x.shape else None for at, x in own]  # None: shared by all

    def instance(self, row: int) -> StructureCase:
        """One instance of the batch alone, without padding."""
        scores = self.structure.instance(self.scores, self.problem, row)
        return StructureCase(f"{self.name}[{row}]", self.structure, scores)


def case_of(
    structure: Structure,
    scores: Any,
    lengths: Tensor | None,
    mask: Tensor | None,
    recursion: Recursion | None,
) -> StructureCase:
    """A case of what a user gave."""
    if isinstance(mask, Tensor):  # one for each instance, as properties take instances apart
        mask = mask.expand(blocks(scores)[0].shape)
    return StructureCase(repr(structure), structure, scores, lengths, mask, recursion)


def blocks(x: Any) -> list[Tensor]:
    """The tensors of scores or means: one, or the fields of a tuple that are there."""
    return [x] if isinstance(x, Tensor) else [block for block in x if block is not None]


def rebuild(like: Any, new: Any) -> Any:
    """Scores of a form, from their blocks."""
    if isinstance(like, Tensor):
        return new[0]
    left = iter(new)
    return type(like)(*(None if block is None else next(left) for block in like))


def counts(structure: Structure, problem: Problem, row: int) -> Tensor:
    """All members of an instance (members, parts), whatever their scores."""
    parts = problem.scores.shape[1]
    key = (repr(structure), problem.layout, tuple(problem.sizes[row].tolist()), parts)
    named = type(structure).__module__.startswith("fenchel.")  # else a repr may say too little
    if not named or key not in _known:
        lists = list(structure.enumerate(problem, row))
        if not lists:
            raise CheckFailed(f"expected members of instance {row}, but `enumerate` lists none")
        rows = torch.zeros(len(lists), parts, dtype=torch.float64)
        for counted, member in zip(rows, lists, strict=True):
            for part in member:
                expect(
                    0 <= part < parts,
                    f"expected parts from 0 to {parts - 1} from `enumerate`, but got {part} in "
                    f"{tuple(member)}",
                )
                counted[part] += 1
        _known[key] = rows
    return _known[key]


def scores_of(members: Tensor, row: Tensor) -> Tensor:
    """The scores of members (members, parts); a part that is not used says nothing, even -inf."""
    return torch.where(members > 0, members * row, 0.0).sum(1)
