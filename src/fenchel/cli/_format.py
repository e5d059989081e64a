from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fenchel.cli._shown import column
from fenchel.decoding import Hypothesis, SearchResult
from fenchel.models import EOS
from fenchel.tasks import Example, Task

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
