from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Literal

from fenchel.cli._format import json_line, tsv_lines
from fenchel.cli._types import Flag, Runs
from fenchel.tasks import Example, Run, SearchOptions, Task, ensemble, open_runs
from fenchel.tasks import predict as predictions

NOTES = 5


def predict(
    file: str = "-",
    /,
    *,
    run: Runs,
    nbest: int = 1,
    support: Flag = False,
    beam: int | None = None,
    exact: Flag = False,
    budget: int = 10_000,
    max_length: int | None = None,
    language: str | None = None,
    format: Literal["tsv", "json"] = "tsv",
    batch: int = 64,
    device: str = "cpu",
) -> None:
    """Answer each line of a file or of standard input.

    The last columns of an answer are its probability and what the search has proved: exhaustive
    (all answers with a probability above 0 were found), proved best, or by how much of
    log-probability another one may be better.

    Args:
        file: The file; - is standard input.
        run: Directory of the trained model; given several times, the average of models.
        nbest: How many answers to give, at most.
        support: Give every token that had a probability above 0, at each step.
        beam: Prefixes of an answer that live at a time; by default that of the run.
        exact: Search until the answers are proved the best ones, in the place of a beam.
        budget: With --exact: the prefixes to try at most, for each line.
        max_length: The longest answer, in tokens; by default that of the run.
        language: Inflection: the language, in the place of what the file's name says.
        format: Columns, or a JSON object for each line.
        batch: Lines that are answered together; 1 answers each as it comes.
        device: Where to compute: cpu, cuda.
    """
    runs = open_runs(run)
    opened = runs[0]
    options = search_options(opened, beam, nbest, exact, budget, max_length, batch)
    options = replace(options, most=None if support else 1)
    examples = opened.task.read([file], gold=False, language=language)
    examples = with_notes(opened.task, examples)
    first = next(examples, None)  # a wrong file shows before the model is loaded
    if first is None:
        return
    model = ensemble(runs, device)
    found = predictions(model, opened.task, chain([first], examples), options)
    for number, (example, result) in enumerate(found, 1):
        if format == "json":
            print(json_line(opened.task, example, result, support))
        else:
            print(*tsv_lines(opened.task, example, result, support), sep="\n")
        if number % batch == 0:
            sys.stdout.flush()  # whoever reads gets answers as they are found


def search_options(
    run: Run,
    beam: int | None,
    nbest: int,
    exact: bool,
    budget: int,
    max_length: int | None,
    batch: int,
) -> SearchOptions:
    """What the command says, and the run's own settings where it says nothing."""
    search = run.config.search
    return SearchOptions(
        beam=search.beam if beam is None else beam,
        nbest=nbest,
        exact=exact,
        budget=budget,
        max_length=search.max_length if max_length is None else max_length,
        length_penalty=search.length_penalty,
        batch=batch,
    )


def with_notes(task: Task, examples: Iterable[Example]) -> Iterator[Example]:
    """Pass examples on; say of the first ones what in them training never saw."""
    told: set[str] = set()
    notes = 0
    for example in examples:
        new = task.unknown(example) - told
        if new and notes < NOTES:
            told |= new
            notes += 1
            names = ", ".join(sorted(map(repr, new)))
            last = "; no more notes of this kind" if notes == NOTES else ""
            print(
                f"note: {example.place}: training never saw {names}; read as unknown{last}.",
                file=sys.stderr,
            )
        yield example
