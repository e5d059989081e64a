"""Small instances of every structure, with all their members: what drives the shared tests."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import fenchel as fy
from fenchel.structures import SequenceScores

INF = math.inf


@dataclass(frozen=True)
class Case:
    """Scores of a batch of instances in the user's form, with lengths and a mask."""

    name: str
    structure: fy.Structure
    scores: Any
    lengths: Tensor | None = None
    mask: Tensor | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def sizes(self) -> dict[str, Tensor | None]:
        """What goes with the scores in a call."""
        return {"lengths": self.lengths, "mask": self.mask}

    @property
    def problem(self):
        return self.structure.problem("test", self.scores, self.lengths, self.mask)

    @property
    def batch_shape(self) -> torch.Size:
        return self.problem.batch_shape

    def members(self) -> list[Tensor]:
        """The counts (members, parts) of what is possible in each instance."""
        problem = self.problem
        every = [counts(self.structure, problem, row) for row in range(len(problem.scores))]
        finite = [
            rows[~((rows > 0) & (row == -INF)).any(1)]
            for rows, row in zip(every, problem.scores, strict=True)
        ]
        assert all(len(rows) > 0 for rows in finite)
        return finite

    def targets(self, seed: int = 0) -> tuple[Any, Tensor]:
        """A member of each instance, drawn at random: in its natural form, and as counts."""
        rng = torch.Generator().manual_seed(seed)
        chosen = [rows[int(torch.randint(len(rows), (), generator=rng))] for rows in self.members()]
        return self.natural(chosen), torch.stack(chosen)

    def natural(self, chosen: list[Tensor]) -> Tensor:
        """Members, as counts, in their natural form; garbage where anything may be."""
        problem = self.problem
        lists = [torch.arange(len(y)).repeat_interleave(y.long()) for y in chosen]
        parts = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=-1)
        target = self.structure.to_target(problem, parts)
        one_a_position = target.dim() == len(problem.batch_shape) + 1
        if self.lengths is not None and self.structure.event_dim == 2 and one_a_position:
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

    def instance(self, row: int) -> Case:
        """One instance of a batch with one axis, without padding."""
        problem = self.problem
        cut = CUTS.get(type(self.structure), lambda x, row, size, _: x[row, : size[0]])
        scores = cut(self.scores, row, problem.sizes[row].tolist(), problem.layout)
        return Case(f"{self.name}[{row}]", self.structure, scores)


def _cut_sequence(scores: Any, row: int, size: list[int], layout: tuple[int, ...]) -> Any:
    length = size[0]
    if isinstance(scores, Tensor):
        return scores[row, :length]
    emissions, transitions, start, end = scores
    if transitions is not None and transitions.dim() > 2:
        transitions = transitions[row]
    if layout[2] == 2:
        transitions = transitions[: length - 1]
    ends = (x if x is None or x.dim() == 1 else x[row] for x in (start, end))
    return SequenceScores(emissions[row, :length], transitions, *ends)


#: How to take an instance out of a padded batch, where it is not the first items of a row.
CUTS = {
    fy.Sequence: _cut_sequence,
    fy.DependencyTree: lambda x, row, size, _: x[row, : size[0], : size[0] + 1],
    fy.Assignment: lambda x, row, size, _: x[row, : size[0], : size[1]],
    fy.Alignment: lambda x, row, size, _: x[row, : size[0], : size[1]],
}


def blocks(x: Any) -> list[Tensor]:
    return [x] if isinstance(x, Tensor) else [block for block in x if block is not None]


def rebuild(like: Any, new: list[Tensor]) -> Any:
    if isinstance(like, Tensor):
        return new[0]
    left = iter(new)
    return SequenceScores(*(None if block is None else next(left) for block in like))


def counts(structure: fy.Structure, problem: Any, row: int) -> Tensor:
    """All members of an instance (members, parts)."""
    parts = problem.scores.shape[1]
    key = (repr(structure), problem.layout, tuple(problem.sizes[row].tolist()), parts)
    if key not in _known:
        lists = list(structure.enumerate(problem, row))
        _known[key] = torch.zeros(len(lists), parts, dtype=torch.float64)
        for counted, member in zip(_known[key], lists, strict=True):
            for part in member:
                counted[part] += 1
    return _known[key]


_known: dict[Any, Tensor] = {}


def case(name: str, structure: fy.Structure, *shapes: Any, scale: float = 1.0, **rest: Any) -> Case:
    """A case of random scores: one shape, or those of the blocks of a SequenceScores."""
    rng = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    drawn = [
        shape and scale * torch.randn(shape, generator=rng, dtype=torch.float64) for shape in shapes
    ]
    return Case(name, structure, drawn[0] if len(drawn) == 1 else SequenceScores(*drawn), **rest)


def forbid(x: Case, block: int, *places: tuple[int, ...]) -> Case:
    """The case with -inf at places of a block of its scores."""
    for place in places:
        blocks(x.scores)[block][place] = -INF
    return x


def _mask(*shape: int, off: list[tuple[int, ...]]) -> Tensor:
    mask = torch.ones(shape, dtype=torch.bool)
    for place in off:
        mask[place] = False
    return mask


TREE, PROJECTIVE = fy.DependencyTree(), fy.DependencyTree(projective=True)
LENGTHS = torch.tensor([3, 1, 2])
PAIRS = torch.tensor([[3, 4], [2, 2], [1, 3]])

CASES = [
    case("one", fy.OneOf(), (3, 4)),
    case("one-single", fy.OneOf(), (5,)),
    case("one-1", fy.OneOf(), (2, 1)),
    case("one-lengths", fy.OneOf(), (3, 4), lengths=torch.tensor([4, 1, 3])),
    case("one-mask", fy.OneOf(), (2, 4), mask=_mask(2, 4, off=[(0, 1), (1, 0), (1, 3)])),
    case("subsets", fy.KSubsets(2), (2, 2, 4)),
    case("subsets-lengths", fy.KSubsets(2), (3, 5), lengths=torch.tensor([5, 2, 3])),
    forbid(case("subsets-inf", fy.KSubsets(3), (2, 5)), 0, (0, 1), (1, 4)),
    case("tags", fy.Sequence(3), (2, 3, 3)),
    case("tags-single", fy.Sequence(2), (4, 2)),
    case("tags-mask", fy.Sequence(3), (2, 3, 3), mask=_mask(2, 3, 3, off=[(0, 1, 2), (1, 0, 0)])),
    case("chain", fy.Sequence(2), (3, 4, 2), (2, 2), (2,), (2,)),
    case("chain-single", fy.Sequence(3), (3, 3), (3, 3), None, (3,)),
    case("chain-1", fy.Sequence(3), (2, 1, 3), (3, 3), (3,), (2, 3)),
    case("chain-lengths", fy.Sequence(2), (3, 3, 2), (2, 2), (2,), (3, 2), lengths=LENGTHS),
    case("chain-item", fy.Sequence(2), (2, 2, 3, 2), (2, 2, 2, 2), None, (2,)),
    case("chain-each", fy.Sequence(2), (3, 3, 2), (3, 2, 2, 2), (3, 2), lengths=LENGTHS),
    forbid(case("chain-inf", fy.Sequence(3), (2, 3, 3), (3, 3), None, None), 1, (0, 1), (2, 2)),
    case("tree", TREE, (2, 3, 4)),
    case("tree-4", TREE, (4, 5)),
    case("tree-1", TREE, (2, 1, 2)),
    case("tree-lengths", TREE, (3, 3, 4), lengths=LENGTHS),
    case("tree-mask", TREE, (2, 3, 4), mask=_mask(2, 3, 4, off=[(0, 1, 0), (1, 2, 1)])),
    case("forest", fy.DependencyTree(single_root=False), (2, 1, 3, 4)),
    case("projective", PROJECTIVE, (2, 4, 5)),
    case("projective-lengths", PROJECTIVE, (3, 3, 4), lengths=LENGTHS),
    case("projective-forest", fy.DependencyTree(False, True), (2, 3, 4)),
    case("square", fy.Assignment(), (2, 3, 3)),
    case("wide", fy.Assignment(), (2, 4)),
    case("tall", fy.Assignment(), (2, 4, 2)),
    case("match-lengths", fy.Assignment(), (3, 3, 4), lengths=PAIRS),
    case("match-mask", fy.Assignment(), (2, 3, 3), mask=_mask(2, 3, 3, off=[(0, 0, 0), (1, 2, 1)])),
    case("path", fy.Alignment(), (2, 3, 3)),
    case("path-wide", fy.Alignment(), (2, 4)),
    case("path-1", fy.Alignment(), (2, 1, 1)),
    case("path-band", fy.Alignment(1), (2, 4, 4)),
    case("path-lengths", fy.Alignment(), (3, 3, 4), lengths=PAIRS),
    case("path-mask", fy.Alignment(), (2, 3, 3), mask=_mask(2, 3, 3, off=[(0, 1, 1), (1, 0, 2)])),
]
PADDED = [x for x in CASES if x.lengths is not None]

every_case = pytest.mark.parametrize("case", CASES, ids=repr)
every_padded_case = pytest.mark.parametrize("case", PADDED, ids=repr)
