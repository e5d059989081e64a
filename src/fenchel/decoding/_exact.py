"""Best-first search: the likeliest prefix is continued first, until there is a proof."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_at_least, check_count, check_positive
from fenchel.decoding._certificate import Scoring, check_scoring
from fenchel.decoding._model import StepModel, check_model, check_source
from fenchel.decoding._result import Record, SearchResult
from fenchel.decoding._support import Support, list_support
from fenchel.decoding._trace import Prefix, StepRow

_REMEDY = "raise `budget`"


@torch.no_grad()
def exact_search(
    model: StepModel,
    source: Tensor,
    source_lengths: Tensor,
    *,
    nbest: int | None = 1,
    mass: float | None = None,
    budget: int = 1000,
    width: int = 16,
    max_length: int = 100,
    length_penalty: float = 0.0,
    trace: bool = True,
    most: int | None = 32,
    bos: int = 1,
    eos: int = 2,
) -> list[SearchResult]:
    """Continue the likeliest prefixes first, until the best outputs are proved or a budget is used.

    A prefix is at least as likely as every output that begins with it. So once ``nbest`` outputs
    are at least as likely as the likeliest prefix that was not continued, they are the best ones.
    With ``nbest=None`` the search lists outputs until nothing with p > 0 is left, which makes it
    *exhaustive*, or until those listed hold ``mass``. The certificate of a search that ran out of
    its budget tells the gap, and how much mass was found: the search first goes along the greedy
    path, so that there is an output to compare with.

    Best-first search suits models with exact zeros or little doubt; for others it needs a budget
    that grows fast with the length of outputs, and :func:`beam_search` gives an answer sooner.

    Args:
        model: in evaluation mode; see :class:`StepModel`.
        source: ``(B, S)`` int64, padded.
        source_lengths: ``(B,)``.
        nbest: how many outputs to prove and return; None: list all.
        mass: in (0, 1], with ``nbest=None``: stop when the outputs found are this likely together.
        budget: how many prefixes of a source the model may be asked to continue.
        width: how many prefixes of a source are continued at once. More is faster, and may continue
            some that turn out not to matter.
        max_length: the greatest length of an output, EOS not counted.
        length_penalty: as for :func:`beam_search`.
        trace: whether to return each output's :class:`Trace`.
        most: how many tokens a trace lists at a step; None: all with p > 0.
        bos: the token that is fed first.
        eos: the token that ends an output.

    Returns:
        One :class:`SearchResult` per source.

    Example:
        >>> from fenchel.decoding import Bigram
        >>> model = Bigram({1: {3: 0.75, 4: 0.25}, 3: {5: 0.5, 2: 0.5}})
        >>> source, lengths = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1)
        >>> (result,) = exact_search(model, source, lengths, width=1)
        >>> result.best.tokens, result.certificate.kind, result.expanded
        ((3,), 'proved best', 2)
        >>> (result,) = exact_search(model, source, lengths, nbest=None)
        >>> len(result.hypotheses), result.certificate.kind
        (3, 'exhaustive')
    """
    name = "exact_search"
    check_model(name, model)
    lengths = check_source(name, source, source_lengths)
    nbest = check_count(name, "nbest", nbest, "all outputs")
    budget = check_at_least(name, "budget", budget, 1)
    width = check_at_least(name, "width", width, 1)
    most = check_count(name, "most", most, "all tokens with p > 0")
    scoring = check_scoring(name, length_penalty, check_at_least(name, "max_length", max_length, 0))
    if mass is not None:
        mass = check_positive(name, "mass", mass, 1.0, "above 0 and at most 1")
        if nbest is not None:
            raise FenchelError(
                f"{name}: `mass` says when a list of all outputs is long enough, but `nbest` is "
                f"{nbest}; set `nbest=None`."
            )
    if not lengths:
        return []
    # No more prefixes than the budget are ever continued, so the rest of a row is not needed.
    listed = None if trace and most is None else max(budget + 2, most or 0 if trace else 0)
    state = model.start(source, source_lengths)
    frontiers = [
        _Frontier(Record(scoring, nbest, length), mass, budget, eos, _Branch(state, place))
        for place, length in enumerate(lengths)
    ]
    todo = [(frontier, Prefix.root(bos), frontier.origin) for frontier in frontiers]
    while todo:
        # Rows can be stepped together only if they are rows of one state.
        groups: dict[int, list[int]] = {}
        for index, (_, _, branch) in enumerate(todo):
            groups.setdefault(id(branch.state), []).append(index)
        said: dict[int, tuple[_Branch, float]] = {}
        for group in groups.values():
            rows = torch.tensor([todo[index][2].row for index in group], device=source.device)
            fed = torch.tensor([todo[index][1].token for index in group], device=source.device)
            step = model.step(todo[group[0]][2].state.select(rows), fed)
            support = list_support(name, step.probabilities, len(group), listed)
            attention = None if step.attention is None or not trace else step.attention.cpu()
            ends = step.probabilities[:, eos].double().clamp(max=1.0).tolist()
            for row, index in enumerate(group):
                prefix = todo[index][1]
                if trace:
                    prefix.said = StepRow(support, row, attention)
                said[index] = _Branch(step.state, row, support, prefix), ends[row]
        # In the order of likelihood, so that other sources do not change which tie comes first.
        for index, (frontier, prefix, _) in enumerate(todo):
            frontier.add(prefix, *said[index])
        todo = [item for frontier in frontiers for item in frontier.take(width)]
    return [frontier.record.result(most, _REMEDY) for frontier in frontiers]


class _Branch:
    """The continuations of a prefix, from the likeliest on, read one by one."""

    def __init__(
        self, state: Any, row: int, support: Support | None = None, prefix: Prefix | None = None
    ) -> None:
        self.state = state
        self.row = row
        self.prefix = prefix
        self.support = support

    def continuations(self, eos: int) -> Iterator[tuple[float, int, float]]:
        """Log-probability of the longer prefix, its last token, and that token's probability."""
        assert self.support is not None and self.prefix is not None
        tokens, probabilities, starts = self.support.lists
        for place in range(starts[self.row], starts[self.row + 1]):
            token, value = tokens[place], probabilities[place]
            if token != eos:
                yield self.prefix.log_probability + math.log(value), token, value


# -log-probability, a serial number, the last token and its probability, where it comes from, and
# what comes after it there.
_Entry = tuple[float, int, int, float, _Branch, Iterator[tuple[float, int, float]]]


class _Frontier:
    """The prefixes of one source that were seen and not yet continued."""

    def __init__(
        self, record: Record, mass: float | None, budget: int, eos: int, origin: _Branch
    ) -> None:
        self.record = record
        self.origin = origin
        self._mass = mass
        self._budget = budget
        self._eos = eos
        self._found = 0.0
        self._serial = 0  # of equals the one that was seen first comes first
        self._heap: list[_Entry] = []
        self._scoring: Scoring = record.scoring
        self._tip: Prefix | None = None  # the greedy prefix, as long as no output was found
        self._deepest: _Branch | None = None  # what follows it

    def add(self, prefix: Prefix, branch: _Branch, end: float) -> None:
        """Take in what the model said after ``prefix``."""
        self.record.expanded += 1
        if end > 0:
            log_probability = prefix.log_probability + math.log(end)
            self.record.finish(prefix.end(self._eos, end, log_probability))
            self._found += math.exp(log_probability)
        if self._tip is None or prefix is self._tip:
            self._tip, self._deepest = prefix, branch
        following = branch.continuations(self._eos)
        if prefix.length < self._scoring.max_length:
            self._push(branch, following)
        elif (first := next(following, None)) is not None:
            self.record.missed.cut = max(self.record.missed.cut, first[0])
            self.record.unfinished.append(prefix)

    def take(self, width: int) -> list[tuple[_Frontier, Prefix, _Branch]]:
        """The likeliest prefixes, to be continued; none when the search is over."""
        taken: list[tuple[_Frontier, Prefix, _Branch]] = []
        while len(taken) < width and self._heap:
            used = self.record.expanded + len(taken)
            if used >= self._budget or self._enough(-self._heap[0][0]):
                break
            dive = not taken and not self.record.finished
            cost, _, token, value, branch, following = self._pop_deepest() if dive else self._pop()
            assert branch.prefix is not None
            prefix = branch.prefix.then(token, value, -cost)
            if dive and branch is self._deepest:
                self._tip = prefix
            taken.append((self, prefix, branch))
            self._push(branch, following)
        if self._heap and not taken:
            self._close()
        return taken

    def _pop(self) -> _Entry:
        return heapq.heappop(self._heap)

    def _pop_deepest(self) -> _Entry:
        """The greedy continuation: a first output, however poor, gives the gap a meaning."""
        for index, entry in enumerate(self._heap):
            if entry[4] is self._deepest:
                self._heap[index] = self._heap[-1]
                self._heap.pop()
                heapq.heapify(self._heap)
                return entry
        return self._pop()

    def _push(self, branch: _Branch, following: Iterator[tuple[float, int, float]]) -> None:
        first = next(following, None)
        if first is not None:
            log_probability, token, value = first
            self._serial += 1
            entry = (-log_probability, self._serial, token, value, branch, following)
            heapq.heappush(self._heap, entry)

    def _enough(self, likeliest: float) -> bool:
        if self._mass is not None and self._found >= self._mass:
            return True
        return self.record.settled_by(likeliest)

    def _close(self) -> None:
        cost, _, token, value, branch, _ = self._heap[0]
        assert branch.prefix is not None
        self.record.missed.open = -cost
        if not self.record.finished:
            self.record.unfinished.append(branch.prefix.then(token, value, -cost))
        self._heap.clear()  # lets go of the states
