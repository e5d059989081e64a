from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar

import torch

from fenchel._checks import FenchelError
from fenchel.decoding import Ensemble, SearchResult, beam_search, exact_search
from fenchel.models import Batch, Seq2Seq
from fenchel.runs.errors import TrainingError
from fenchel.tasks._task import Example, Task

_TOKENS = 1 << 17  # of a batch, with padding; what is computed for each takes kilobytes


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
        beam: prefixes that live at a time.
        nbest: answers to return.
        exact: best-first search until proof or ``budget``, instead of the beam.
        budget: prefixes that exact search may expand for one input.
        max_length: the longest answer.
        length_penalty: favours long answers.
        batch: inputs that are searched together.
        most: how many tokens a trace lists at a step; None: all with p > 0.
    """

    beam: int = 5
    nbest: int = 1
    exact: bool = False
    budget: int = 10_000
    max_length: int = 100
    length_penalty: float = 0.0
    batch: int = 64
    most: int | None = 32

    # What is more than anybody can mean, and would not fit into memory or the native code's ints.
    limits: ClassVar[Mapping[str, int]] = {
        "beam": 1_000_000,
        "nbest": 1_000_000,
        "budget": 1_000_000_000,
        "max_length": 1_000_000,
        "batch": 1_000_000,
    }

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
                raise FenchelError(
                    f"--{name.replace('_', '-')}: expected a whole number from 1 to {limit:,}, but "
                    f"got {value!r}."
                )


def predict(
    model: Seq2Seq | Ensemble, task: Task, examples: Iterable[Example], options: SearchOptions
) -> Iterator[tuple[Example, SearchResult]]:
    """Each example with what the search found, in order; examples are read as they are needed.

    If an example cannot be read, those before it are answered first; then comes the error.
    """
    search: Callable[..., list[SearchResult]] = (
        partial(exact_search, budget=options.budget)
        if options.exact
        else partial(beam_search, beam=options.beam)
    )
    iterator = iter(examples)
    device = next(model.parameters()).device
    problem: list[FenchelError] = []
    while not problem:
        chunk = list(_until_error(islice(iterator, options.batch), problem))
        if not chunk:
            break
        results = []
        for batch in _batches(task, chunk):
            with _diverged(FenchelError):
                results += search(
                    model,
                    batch.source.to(device),
                    batch.source_lengths.to(device),
                    nbest=options.nbest,
                    max_length=options.max_length,
                    length_penalty=options.length_penalty,
                    most=options.most,
                )
        yield from zip(chunk, results, strict=True)
    if problem:
        raise problem[0]


@contextmanager
def _diverged(kind: type[Exception]) -> Iterator[None]:
    """Say what it means that a search refuses a model: its arguments were checked before."""
    try:
        yield
    except FenchelError as error:
        raise kind(
            "expected a model whose probabilities are finite and sum to 1, but its weights have "
            "diverged; train it again with a smaller train.learning_rate."
        ) from error


def _batches(task: Task, examples: Sequence[Example]) -> Iterator[Batch]:
    """The inputs in order: all in one batch, unless long ones make it too large for the memory."""
    pairs: list[tuple[list[int], list[int]]] = []
    longest = 0
    for example in examples:
        source = task.encode_source(example)
        longest = max(longest, len(source))
        if pairs and longest * (len(pairs) + 1) > _TOKENS:
            yield Batch.collate(pairs)
            pairs, longest = [], len(source)
        pairs.append((source, []))
    if pairs:
        yield Batch.collate(pairs)


def _until_error(examples: Iterator[Example], problem: list[FenchelError]) -> Iterator[Example]:
    """The examples up to the first that cannot be read, whose error is kept for later."""
    try:
        yield from examples
    except FenchelError as error:
        problem.append(error)


def best_answers(
    model: Seq2Seq, task: Task, examples: Sequence[Example], *, beam: int, max_length: int
) -> list[str]:
    """The best answer to each example, and nothing else: for validation."""
    answers = []
    device = next(model.parameters()).device
    for start in range(0, len(examples), 256):
        for batch in _batches(task, examples[start : start + 256]):
            with torch.no_grad(), _diverged(TrainingError):
                found = beam_search(
                    model,
                    batch.source.to(device),
                    batch.source_lengths.to(device),
                    beam=beam,
                    max_length=max_length,
                    complete=False,
                    trace=False,
                )
            answers += [task.decode(result.best.tokens) for result in found]
    return answers


def evaluate(
    model: Seq2Seq | Ensemble, task: Task, examples: Iterable[Example], options: SearchOptions
) -> dict[str, float]:
    """The task's metrics, and what the search proved."""
    seen: list[Example] = []
    answers: list[str] = []

    def results() -> Iterator[SearchResult]:
        for example, result in predict(model, task, examples, options):
            seen.append(example)
            answers.append(task.decode(result.best.tokens))
            yield result  # and forget it: traces are large

    statistics = search_statistics(results())
    return task.score(seen, answers) | statistics


def search_statistics(results: Iterable[SearchResult]) -> dict[str, float]:
    """What searches proved, as shares of all of them.

    Returns:
        ``certified``: the best answer is proved best; ``exhaustive``: all answers were listed;
        ``single``: there is one answer only; ``support``: how many tokens had a probability above
        0, on average over the steps of the best answers.
    """
    count = certified = exhaustive = single = steps = support = 0
    for result in results:
        kind = result.certificate.kind
        count += 1
        certified += kind != "none"
        exhaustive += kind == "exhaustive"
        single += kind == "exhaustive" and result.found == 1
        trace = result.best.trace
        sizes = [step.support_size for step in trace.steps] if trace else []
        steps += len(sizes)
        support += sum(sizes)
    if not count:
        raise FenchelError("search_statistics: expected at least one result, but got none.")
    return {
        "certified": certified / count,
        "exhaustive": exhaustive / count,
        "single": single / count,
        "support": support / steps if steps else 0.0,
    }
