"""``fenchel predict``: search for answers, and print them as columns or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal

from fenchel._checks import FenchelError
from fenchel.cli._options import (
    Beam,
    Budget,
    Flag,
    Language,
    Length,
    Lines,
    Nbest,
    Runs,
    check_device,
    check_run_name,
)
from fenchel.cli._output import answer, answer_json, note
from fenchel.cli._shown import column
from fenchel.decoding import Hypothesis, SearchResult
from fenchel.models import EOS
from fenchel.tasks import Example, Run, SearchOptions, Task, ensemble, open_runs
from fenchel.tasks import predict as predictions
from fenchel.tasks.files import STDIN

NOTES = 5
WAITING = "waiting for lines from the terminal; Ctrl-D ends them."


def predict(
    file: str = "-",
    /,
    *,
    run: Runs,
    nbest: Nbest = 1,
    support: Flag = False,
    beam: Beam | None = None,
    exact: Flag = False,
    budget: Budget | None = None,
    max_length: Length | None = None,
    language: Language | None = None,
    format: Literal["tsv", "json"] = "tsv",
    batch: Lines | None = None,
    device: str = "cpu",
) -> None:
    """Answer each line of a file or of standard input.

    The last columns of an answer are its probability and what the search has proved: exhaustive
    (all answers with a probability above 0 were found), proved best, or an upper bound on how much
    better (in log-probability) a missed answer could be. Columns show control characters and
    backslashes as escapes, as \\x1b; JSON has every answer as it is.

    Args:
        file: The file; - is standard input.
        run: Directory of the trained model; given several times, the average of the models.
        nbest: How many answers to give, at most.
        support: Give every token that had a probability above 0, at each step.
        beam: Beam width (default: the run's).
        exact: Search until the answers are proved best, instead of with a beam.
        budget: With --exact: how many prefixes to try at most, per line (default: 10000).
        max_length: The longest answer, in tokens (default: the run's).
        language: Inflection: the language, instead of what the file's name says.
        format: Columns, or a JSON object for each line.
        batch: Lines that are answered together; 1 answers each as it comes (default: 64, at a
            terminal 1).
        device: Where to compute: cpu, cuda.
    """
    check_device(device)
    at_terminal = waits_for_terminal([file])
    batch = batch or (1 if at_terminal else 64)
    for directory in run:
        check_run_name("--run", directory)
    runs = open_runs(run)
    opened = runs[0]
    options = search_options(opened, beam, nbest, exact, budget, max_length, batch)
    options = replace(options, most=None if support else 1)
    examples = opened.task.read([file], gold=False, language=language)
    examples = with_notes(opened.task, examples)
    if at_terminal:
        note(WAITING)
    first = next(examples, None)  # a wrong file shows before the model is loaded
    if first is None:
        return
    model = ensemble(runs, device)
    found = predictions(model, opened.task, chain([first], examples), options)
    for number, (example, result) in enumerate(found, 1):
        if format == "json":
            answer_json(json_line(opened.task, example, result, support))
        else:
            for line in tsv_lines(opened.task, example, result, support):
                answer(line)
        if number % batch == 0:
            sys.stdout.flush()  # whoever reads gets answers as they are found


def waits_for_terminal(files: Sequence[str]) -> bool:
    """Whether somebody has to type the lines, and should be told."""
    return STDIN in files and sys.stdin is not None and sys.stdin.isatty()


def search_options(
    run: Run,
    beam: int | None,
    nbest: int,
    exact: bool,
    budget: int | None,
    max_length: int | None,
    batch: int,
) -> SearchOptions:
    """What the command says, and the run's own settings where it says nothing."""
    if exact and beam is not None:
        raise FenchelError("--beam: expected without --exact, which searches without a beam.")
    if budget is not None and not exact:
        raise FenchelError("--budget: expected with --exact only; a beam has none.")
    search = run.config.search
    return SearchOptions(
        beam=search.beam if beam is None else beam,
        nbest=nbest,
        exact=exact,
        budget=10_000 if budget is None else budget,
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
            note(f"{example.place}: training never saw {names}; read as unknown{last}.")
        yield example


END, SPACE = "⏎", "␣"


def tsv_lines(task: Task, example: Example, result: SearchResult, support: bool) -> Iterator[str]:
    """A line for each answer: the task's columns, probability, certificate, and the support."""
    for rank, hypothesis in enumerate(result.hypotheses):
        columns = [*task.columns(example, task.decode(hypothesis.tokens))]
        columns += [f"{hypothesis.probability:.6g}", certificate_of(result, rank)]
        if support:
            columns.append(_support_text(task, hypothesis))
        yield "\t".join(map(column, columns))  # an answer may have any character


def json_line(task: Task, example: Example, result: SearchResult, support: bool) -> str:
    """The input, all answers and the certificate as one JSON object."""
    record: dict[str, Any] = {"place": example.place, "source": example.source}
    if example.tags:
        record |= {"tags": list(example.tags), "language": example.group}
    record["answers"] = [
        {
            "text": task.decode(hypothesis.tokens),
            "probability": hypothesis.probability,
            "log_probability": hypothesis.log_probability,
            "finished": hypothesis.finished,
            "certificate": certificate_of(result, rank),
            **({"support": _support(task, hypothesis)} if support else {}),
        }
        for rank, hypothesis in enumerate(result.hypotheses)
    ]
    record["certificate"] = result.certificate.to_dict()
    record["found"] = result.found
    return json.dumps(record, ensure_ascii=False)


def certificate_of(result: SearchResult, rank: int) -> str:
    """What is proved of one answer: that it and those above it are the best, or the gap."""
    certificate = result.certificate
    if certificate.kind == "exhaustive":
        return "exhaustive"
    if rank < certificate.proved:
        return "proved best"
    return "none" if certificate.kind == "proved best" else f"gap {certificate.gap:.4g}"


def _support(task: Task, hypothesis: Hypothesis) -> list[list[list[Any]]]:
    steps = hypothesis.trace.steps if hypothesis.trace else ()
    return [
        [
            [task.target_name(token), probability]
            for token, probability in zip(step.support, step.probabilities, strict=True)
        ]
        for step in steps
    ]


def _support_text(task: Task, hypothesis: Hypothesis) -> str:
    """Steps with one choice as the token alone, others as ``{a 0.97|e 0.03}``."""
    parts = []
    for step in hypothesis.trace.steps if hypothesis.trace else ():
        names = [_name(task, token) for token in step.support]
        if step.support_size == 1:
            parts.append(names[0])
            continue
        pairs = zip(names, step.probabilities, strict=True)
        text = "|".join(f"{name} {probability:.3g}" for name, probability in pairs)
        parts.append("{" + text + "}")
    return " ".join(parts)


def _name(task: Task, token: int) -> str:
    return END if token == EOS else task.target_name(token).replace(" ", SPACE)
