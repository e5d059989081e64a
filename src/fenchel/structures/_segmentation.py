from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int, check_scores
from fenchel.structures._sizes import check_sizes
from fenchel.structures._structure import BuiltIn, check_integers, masked
from fenchel.structures.problem import Problem, Shaped, check_values, to_flat


class SegmentScores(NamedTuple):
    """Scores of labelled segments with those of neighbouring labels, and the form of their means.

    Attributes:
        segments: (*batch, T, L, K), by first position, length less 1, and label.
        transitions: indexed [from, to]: (K, K), shared by all instances, or (*batch, K, K). In
            means, the expected number of times each is used, (*batch, K, K).
    """

    segments: Tensor
    transitions: Tensor | None = None


class Segmentation(BuiltIn):
    r"""Cuts of a sequence into labelled segments: a semi-Markov chain.

    .. math:: \langle \theta, y \rangle = \sum_{(t, \ell, k) \in y} s_{t, \ell, k}
              + \sum_{\text{neighbours}} a_{k, k'}

    Every position lies in exactly one segment, of at most ``max_length`` positions and with one of
    ``n_labels`` labels. Scores are those of segments, (*batch, T, L, K): entry ``[t, l - 1, k]`` is
    for the l positions from t on with label k; segments that would reach beyond the end are
    ignored. A :class:`SegmentScores` adds transitions between the labels of neighbours; means have
    the same form. ``lengths`` (*batch) says how many positions there are; ``mask`` is for segments.
    A target (*batch, T) has the label of each segment where it begins, and -1 where none begins;
    behind the length it may hold anything.

    For entities in a text, chunks, shots of a film or phases of a process: where a score is known
    for a whole stretch, and not only for its positions. With ``max_length=1`` it is a
    :class:`Sequence`. The best one and all sums take :math:`O(T (L K + K^2))` steps.

    In a smoothed program (:class:`fenchel.SmoothedDP`) a segment chooses its length and the label
    before it in one smoothed maximum; the last label is one more. With ``"l2"`` that takes
    :math:`O(T L K^2)` steps.

    Args:
        n_labels: how many labels there are, K.
        max_length: how many positions a segment may have, L.

    Example:
        >>> scores = torch.zeros(4, 2, 2)  # 4 positions, up to 2 of them in a segment, 2 labels
        >>> scores[1, 1, 0] = 3.0  # positions 1 and 2 with label 0
        >>> scores[:, 0, 1] = 1.0  # single positions with label 1
        >>> y = Segmentation(2, 2).argmax(scores)
        >>> y.nonzero().tolist()
        [[0, 0, 1], [1, 1, 0], [3, 0, 1]]
        >>> fy.Marginals(Segmentation(2, 2)).predict(scores)[1, 1, 0]
        tensor(0.5124)

    References:
        Sarawagi & Cohen. Semi-Markov Conditional Random Fields for Information Extraction.
        NeurIPS 2004.
    """

    event_dim = 3
    smoothings = ("entropy", "l2")

    def __init__(self, n_labels: int, max_length: int) -> None:
        self.n_labels = check_int("Segmentation", "n_labels", n_labels)
        self.max_length = check_int("Segmentation", "max_length", max_length)
        for name, value in (("n_labels", self.n_labels), ("max_length", self.max_length)):
            if value < 1:
                raise FenchelError(f"Segmentation: `{name}` must be at least 1; got {value}.")

    def __repr__(self) -> str:
        return f"Segmentation({self.n_labels}, max_length={self.max_length})"

    def enumerate(self, problem: Problem, row: int = 0) -> Iterator[tuple[int, ...]]:
        """All segmentations of instance ``row`` as lists of parts."""
        positions, longest, labels, has_transitions = problem.layout
        length = int(problem.sizes[row])

        def onward(t: int, last: int | None) -> Iterator[tuple[int, ...]]:
            if t == length:
                yield ()
            for size in range(1, min(longest, length - t) + 1):
                for label in range(labels):
                    parts = [(t * longest + size - 1) * labels + label]
                    if has_transitions and last is not None:
                        parts.append(positions * longest * labels + last * labels + label)
                    for rest in onward(t + size, label):
                        yield (*parts, *rest)

        return onward(0, None)

    # ------------------------------------------------------------------ what solvers call

    def problem(self, name: str, scores: Any, lengths: Any = None, mask: Any = None) -> Problem:
        blocks = scores if isinstance(scores, SegmentScores) else SegmentScores(scores)
        if isinstance(blocks.segments, tuple):
            raise FenchelError(
                f"{name}: expected segments (a tensor) or a SegmentScores, but got "
                f"{type(scores).__name__}; write SegmentScores(segments, transitions)."
            )
        check_scores(name, blocks.segments, -1)
        shape = tuple(blocks.segments.shape)
        if len(shape) < 3 or shape[-2:] != (self.max_length, self.n_labels) or shape[-3] < 1:
            raise FenchelError(
                f"{name}: expected segments of shape (*batch, T, {self.max_length}, "
                f"{self.n_labels}) with T at least 1, for {self!r}, but got {shape}."
            )
        batch_shape, positions = blocks.segments.shape[:-3], shape[-3]
        count = math.prod(batch_shape)
        sizes = check_sizes(name, lengths, batch_shape, (positions,))
        segments = to_flat(masked(name, blocks.segments, mask)).reshape(count, *shape[-3:])
        ends = torch.arange(positions).unsqueeze(1) + torch.arange(1, self.max_length + 1)
        inside = (ends <= sizes.unsqueeze(2)).unsqueeze(3)
        segments = torch.where(inside, segments, 0.0)  # the rest may hold anything
        flat = [segments.reshape(count, math.prod(shape[-3:]))]
        if blocks.transitions is not None:
            square = self._check_transitions(name, blocks.transitions, batch_shape)
            flat.append(square.reshape(count, self.n_labels**2))
        joined = torch.cat(flat, 1) if len(flat) > 1 else flat[0]
        check_values(name, joined)
        layout = (*shape[-3:], int(blocks.transitions is not None))
        return Problem(
            scores=joined,
            n_unary=math.prod(shape[-3:]),
            sizes=sizes,
            layout=layout,
            batch_shape=batch_shape,
            dtype=blocks.segments.dtype,
            device=blocks.segments.device,
            restore=_SegmentBlocks(batch_shape, layout)
            if scores is blocks
            else Shaped(scores.shape),
        )

    def target_parts(self, name: str, problem: Problem, target: Any) -> Tensor:
        positions, longest, labels, has_transitions = problem.layout
        what = "the label of each segment where it begins and -1 elsewhere"
        at = torch.arange(positions)
        begun = check_integers(name, target, (*problem.batch_shape, positions), what)
        begun = begun.reshape(len(problem.scores), positions)
        begun = torch.where(at < problem.sizes, begun, -1)
        starts = begun >= 0
        # A segment ends where the next one begins, or with its instance.
        next_start = torch.where(starts, at, problem.sizes).flip(1).cummin(1).values.flip(1)
        size = torch.cat([next_start[:, 1:], problem.sizes], 1) - at
        bad = (begun < -1) | (begun >= labels) | (starts & (size > longest)) | ((at == 0) & ~starts)
        bad = bad.any(1)
        if bool(bad.any()):
            row = int(bad.long().argmax())
            raise FenchelError(
                f"{name}: expected segments of up to {longest} positions in `target`, the first "
                f"one at position 0, with labels from 0 to {labels - 1} where they begin and -1 "
                f"elsewhere, but instance {row} of the batch has "
                f"{begun[row, : int(problem.sizes[row])].tolist()}."
            )
        lists = [torch.where(starts, (at * longest + size - 1) * labels + begun, -1)]
        latest = torch.where(starts, at, 0).cummax(1).values  # the segment that a position is in
        if has_transitions:
            before = begun.gather(1, latest[:, :-1])
            pairs = positions * longest * labels + before * labels + begun[:, 1:]
            lists.append(torch.where(starts[:, 1:], pairs, -1))
        # In the order of the oracles: what is the same member has the same score to the last bit.
        none = problem.scores.shape[1]
        parts = torch.cat(lists, 1)
        parts = torch.where(parts < 0, none, parts).sort(1).values
        return torch.where(parts == none, -1, parts)

    def to_target(self, problem: Problem, parts: Tensor) -> Tensor:
        positions, longest, labels, _ = problem.layout
        cells = problem.indicator(parts)[:, : problem.n_unary]
        cells = cells.reshape(-1, positions, longest, labels).sum(2)
        begun = torch.where(cells.any(2), cells.argmax(2), -1)
        return begun.reshape(*problem.batch_shape, positions)

    def instance(self, scores: Any, problem: Problem, row: int) -> Any:
        if isinstance(scores, Tensor):
            return super().instance(scores, problem, row)
        transitions = scores.transitions
        if transitions is not None and transitions.dim() > 2:
            transitions = transitions.reshape(-1, self.n_labels, self.n_labels)[row]
        return SegmentScores(super().instance(scores.segments, problem, row), transitions)

    def n_choices(self, problem: Problem, parts: Tensor) -> Tensor:
        # Its length with the label before it for each segment, and the last label. What ends before
        # position 1 is one segment of length 1, so that nothing is chosen there.
        labels = problem.layout[2]
        is_segment = (parts >= 0) & (parts < problem.n_unary)
        starts_with_one = (is_segment & (parts < labels)).any(1)
        return is_segment.sum(1) + 1 - starts_with_one.long()

    def unary(self, means: Any) -> Tensor:
        return means.segments if isinstance(means, SegmentScores) else means

    def kind(self, problem: Problem) -> str:
        return "segmentation"

    def _check_transitions(self, name: str, transitions: Any, batch_shape: torch.Size) -> Tensor:
        square = (self.n_labels, self.n_labels)
        shapes = dict.fromkeys([square, (*batch_shape, *square)])
        fits = isinstance(transitions, Tensor) and transitions.is_floating_point()
        if not fits or tuple(transitions.shape) not in shapes:
            got = type(transitions).__name__
            if isinstance(transitions, Tensor):
                got = f"{tuple(transitions.shape)} of {transitions.dtype}"
            raise FenchelError(
                f"{name}: expected `transitions` to be a floating tensor of shape "
                f"{' or '.join(map(str, shapes))}, but got {got}."
            )
        return to_flat(transitions).expand(*batch_shape, *square)


@dataclass(frozen=True)
class _SegmentBlocks:
    """Flat means (instances, parts) in the form of a :class:`SegmentScores`."""

    batch: torch.Size
    layout: tuple[int, ...]

    def __call__(self, means: Tensor) -> SegmentScores:
        positions, longest, labels, has_transitions = self.layout
        cut = positions * longest * labels
        return SegmentScores(
            means[:, :cut].reshape(*self.batch, positions, longest, labels),
            means[:, cut:].reshape(*self.batch, labels, labels) if has_transitions else None,
        )
