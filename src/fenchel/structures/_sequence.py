from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import FenchelError, check_int, check_scores
from fenchel.structures._sizes import check_sizes
from fenchel.structures._structure import BuiltIn, check_integers, masked
from fenchel.structures.problem import Problem, Shaped, check_values, to_flat

_KINDS = {None: 0, "shared": 1, "each": 2}


class SequenceScores(NamedTuple):
    """Scores of a chain's parts, and the form of their means.

    Attributes:
        emissions: (*batch, T, K), a score for each tag at each position.
        transitions: indexed [from, to]: (K, K), shared by all positions and instances;
            (*batch, K, K), shared by the positions of an instance; or (*batch, T-1, K, K).
        start: (K,) or (*batch, K), added for the first tag.
        end: (K,) or (*batch, K), added for the last tag.

    In means, what was shared is there for each instance: (*batch, K, K), the expected number of
    times a transition is used, and (*batch, K).
    """

    emissions: Tensor
    transitions: Tensor | None = None
    start: Tensor | None = None
    end: Tensor | None = None


class Sequence(BuiltIn):
    r"""Sequences of tags with scores for neighbours: a linear chain.

    .. math:: \langle \theta, y \rangle = s_{y_1} + \sum_{t=1}^T e_{t, y_t}
              + \sum_{t=1}^{T-1} a_{y_t, y_{t+1}} + f_{y_T}

    Scores are the emissions :math:`e` alone, (*batch, T, K), or a :class:`SequenceScores` with
    transitions :math:`a` (shared, or for each position), start :math:`s` and end :math:`f`; means
    have the same form. ``lengths`` (*batch) says how long each sequence is: what is behind it is
    ignored, and ``end`` counts at the last valid position. ``mask`` is for emissions; ``-inf``
    forbids a tag or a transition. A target is tag indices (*batch, T), anything behind the length.

    Args:
        n_tags: how many tags there are, K.

    Example:
        >>> emissions = torch.tensor([[1.0, 0.0], [0.4, 0.6], [1.0, 0.0]])
        >>> Sequence(2).argmax(emissions)
        tensor([[1., 0.],
                [0., 1.],
                [1., 0.]])
        >>> stay = torch.tensor([[0.5, 0.0], [0.0, 0.5]])
        >>> Sequence(2).argmax(SequenceScores(emissions, stay)).transitions
        tensor([[2., 0.],
                [0., 0.]])
    """

    event_dim = 2
    smoothings = ("entropy", "l2")

    def __init__(self, n_tags: int) -> None:
        self.n_tags = check_int("Sequence", "n_tags", n_tags)
        if self.n_tags < 1:
            raise FenchelError(f"Sequence: `n_tags` must be at least 1; got {n_tags}.")

    def enumerate(self, problem: Problem, row: int = 0) -> Iterator[tuple[int, ...]]:
        """All sequences of instance ``row`` as lists of parts."""
        (positions, k, kind, start, end), length = problem.layout, int(problem.sizes[row])
        behind = positions * k + (0, 1, positions - 1)[kind] * k * k
        for tags in itertools.product(range(k), repeat=length):
            parts = [t * k + tag for t, tag in enumerate(tags)]
            if kind != _KINDS[None]:
                for t in range(length - 1):
                    square = t if kind == _KINDS["each"] else 0
                    parts.append(positions * k + square * k * k + tags[t] * k + tags[t + 1])
            if start:
                parts.append(behind + tags[0])
            if end:
                parts.append(behind + start * k + tags[-1])
            yield tuple(parts)

    def __repr__(self) -> str:
        return f"Sequence({self.n_tags})"

    # ------------------------------------------------------------------ what solvers call

    def problem(self, name: str, scores: Any, lengths: Any = None, mask: Any = None) -> Problem:
        blocks = scores if isinstance(scores, SequenceScores) else SequenceScores(scores)
        batch_shape, positions = self._check_emissions(name, blocks.emissions)
        count, k = math.prod(batch_shape), self.n_tags
        sizes = check_sizes(name, lengths, batch_shape, (positions,))
        inside = torch.arange(positions) < sizes
        emissions = to_flat(masked(name, blocks.emissions, mask)).reshape(count, positions, k)
        full = lengths is None  # nothing to hide behind the lengths, most often
        if not full:
            emissions = torch.where(inside[:, :, None], emissions, 0.0)
        flat = [emissions.reshape(count, positions * k)]
        kind = self._transitions_kind(name, blocks.transitions, batch_shape, positions)
        if blocks.transitions is not None and kind == _KINDS["each"]:
            squares = to_flat(blocks.transitions).reshape(count, positions - 1, k, k)
            if not full:
                squares = torch.where(inside[:, 1:, None, None], squares, 0.0)
            flat.append(squares.reshape(count, (positions - 1) * k * k))
        elif blocks.transitions is not None:
            square = to_flat(blocks.transitions).expand(*batch_shape, k, k)
            flat.append(square.reshape(count, k * k))
        for label, ends in (("start", blocks.start), ("end", blocks.end)):
            if ends is not None:
                self._check_block(name, label, ends, [(k,), (*batch_shape, k)])
                flat.append(to_flat(ends).expand(*batch_shape, k).reshape(count, k))
        joined = torch.cat(flat, 1) if len(flat) > 1 else flat[0]
        check_values(name, joined)
        layout = (positions, k, kind, int(blocks.start is not None), int(blocks.end is not None))
        whole = scores is blocks
        return Problem(
            scores=joined,
            n_unary=positions * k,
            sizes=sizes,
            layout=layout,
            batch_shape=batch_shape,
            dtype=blocks.emissions.dtype,
            device=blocks.emissions.device,
            restore=_Blocks(batch_shape, layout) if whole else Shaped(scores.shape),
        )

    def target_parts(self, name: str, problem: Problem, target: Any) -> Tensor:
        positions = problem.layout[0]
        tags = check_integers(name, target, (*problem.batch_shape, positions), "tag indices")
        tags = tags.reshape(problem.scores.shape[0], positions)
        tags = torch.where(torch.arange(positions) < problem.sizes, tags, 0)
        if bool((tags < 0).any() | (tags >= self.n_tags).any()):
            raise FenchelError(
                f"{name}: expected tags from 0 to {self.n_tags - 1} in `target`, but one is out of "
                "range; only positions behind the length may hold anything."
            )
        return kernels.sequence_parts(tags, problem.layout, problem.sizes)

    def to_target(self, problem: Problem, parts: Tensor) -> Tensor:
        positions, k = problem.layout[:2]
        cells = problem.indicator(parts)[:, : positions * k].reshape(-1, positions, k)
        tags = torch.where(cells.any(2), cells.argmax(2), -1)
        return tags.reshape(*problem.batch_shape, positions)

    def instance(self, scores: Any, problem: Problem, row: int) -> Any:
        if isinstance(scores, Tensor):
            return super().instance(scores, problem, row)
        length, axes = int(problem.sizes[row]), len(problem.batch_shape)

        def own(block: Tensor | None, dim: int) -> Tensor | None:
            """A block of ``dim`` axes, which may be shared by all instances."""
            if block is None or block.dim() == dim:
                return block
            return block.reshape(-1, *block.shape[axes:])[row]

        transitions = own(scores.transitions, 2)
        if transitions is not None and problem.layout[2] == _KINDS["each"]:
            transitions = transitions[: length - 1]
        emissions = super().instance(scores.emissions, problem, row)
        return SequenceScores(emissions, transitions, own(scores.start, 1), own(scores.end, 1))

    def n_choices(self, problem: Problem, parts: Tensor) -> Tensor:
        return problem.sizes[:, 0]  # a predecessor at each position but the first, and the last tag

    def unary(self, means: Any) -> Tensor:
        return means.emissions if isinstance(means, SequenceScores) else means

    def kind(self, problem: Problem) -> str:
        return "sequence"

    # ------------------------------------------------------------------ checks

    def _check_emissions(self, name: str, emissions: Any) -> tuple[torch.Size, int]:
        if isinstance(emissions, tuple | list):
            raise FenchelError(
                f"{name}: expected emissions (a tensor) or a SequenceScores, but got "
                f"{type(emissions).__name__}; write SequenceScores(emissions, transitions, ...)."
            )
        check_scores(name, emissions, -1)
        shape = tuple(emissions.shape)
        if len(shape) < 2 or shape[-1] != self.n_tags or shape[-2] < 1:
            raise FenchelError(
                f"{name}: expected emissions of shape (*batch, T, {self.n_tags}) with T at least 1,"
                f" for {self!r}, but got {shape}."
            )
        return emissions.shape[:-2], shape[-2]

    def _transitions_kind(
        self, name: str, transitions: Any, batch_shape: torch.Size, positions: int
    ) -> int:
        if transitions is None:
            return _KINDS[None]
        k = self.n_tags
        each = (*batch_shape, positions - 1, k, k)
        self._check_block(name, "transitions", transitions, [(k, k), (*batch_shape, k, k), each])
        return _KINDS["each" if transitions.dim() == len(each) else "shared"]

    @staticmethod
    def _check_block(name: str, label: str, block: Any, shapes: list[tuple[int, ...]]) -> None:
        fits = isinstance(block, Tensor) and block.is_floating_point()
        if not fits or tuple(block.shape) not in shapes:
            got = tuple(block.shape) if isinstance(block, Tensor) else type(block).__name__
            kind = f" of {block.dtype}" if isinstance(block, Tensor) else ""
            raise FenchelError(
                f"{name}: expected `{label}` to be a floating tensor of shape "
                f"{' or '.join(str(shape) for shape in dict.fromkeys(shapes))}, but got "
                f"{got}{kind}."
            )


@dataclass(frozen=True)
class _Blocks:
    """Flat means (instances, parts) in the form of a :class:`SequenceScores`."""

    batch: torch.Size
    layout: tuple[int, ...]

    def __call__(self, means: Tensor) -> SequenceScores:
        batch, (positions, k, kind, has_start, has_end) = self.batch, self.layout
        squares = (0, 1, positions - 1)[kind]
        sizes = [positions * k, squares * k * k, has_start * k, has_end * k]
        emissions, transitions, start, end = means.split(sizes, 1)
        square = (positions - 1, k, k) if kind == _KINDS["each"] else (k, k)
        return SequenceScores(
            emissions.reshape(*batch, positions, k),
            transitions.reshape(*batch, *square) if kind != _KINDS[None] else None,
            start.reshape(*batch, k) if has_start else None,
            end.reshape(*batch, k) if has_end else None,
        )
