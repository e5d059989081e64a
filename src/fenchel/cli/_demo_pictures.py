from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fenchel._compat import MissingDependency, require
from fenchel.analysis import plot_attention, plot_beam
from fenchel.cli._demo_files import DemoFiles
from fenchel.cli._demo_report import WORDS
from fenchel.decoding import Hypothesis, SearchResult
from fenchel.models import EOS
from fenchel.tasks import Example, Task

_END = "⏎"
_KINDS = ("beam", "attention")
PICTURES = [f"{kind}-{number}.png" for number in range(1, WORDS + 1) for kind in _KINDS]


def draw_pictures(
    task: Task, words: Sequence[tuple[Example, SearchResult]], out: DemoFiles
) -> list[Path]:
    """For each word the tree of its forms and the best one's attention, if matplotlib is there."""
    try:
        require("matplotlib.figure", extra="demo", purpose="a picture")
    except MissingDependency:
        return []
    paths = []
    for number, (example, result) in enumerate(words, 1):
        steps = [_steps(task, hypothesis) for hypothesis in result.hypotheses]
        axes = plot_beam(steps, start=example.source, end=_END)
        paths.append(out.replace(f"beam-{number}.png", _png(axes)))
        axes = _attention(task, example, result)
        paths.append(out.replace(f"attention-{number}.png", _png(axes)))
    return paths


def _steps(task: Task, hypothesis: Hypothesis) -> list[tuple[str, float]]:
    assert hypothesis.trace is not None
    return [(_name(task, step.token), step.probability) for step in hypothesis.trace.steps]


def _attention(task: Task, example: Example, result: SearchResult) -> Any:
    trace = result.best.trace
    assert trace is not None
    weights = torch.tensor([step.attention for step in trace.steps])
    names = task.source_names(example)
    figure = require("matplotlib.figure", extra="demo", purpose="a picture")
    rows, columns = weights.shape
    axes = figure.Figure(
        figsize=(0.42 * columns + 1.0, 0.42 * rows + 1.4), layout="constrained"
    ).subplots()
    # every weight is its own group: equal ones are a coincidence here
    groups = torch.arange(columns).expand(rows, columns)
    plot_attention(
        weights, [_name(task, s.token) for s in trace.steps], names, groups=groups, ax=axes
    )
    axes.set_title(f"{example.source} → {task.decode(result.best.tokens)}", fontsize=12)
    return axes


def _name(task: Task, token: int) -> str:
    return _END if token == EOS else task.target_name(token)


def _png(axes: Any) -> bytes:
    data = io.BytesIO()
    axes.figure.savefig(data, format="png", dpi=150, bbox_inches="tight", pad_inches=0.15)
    return data.getvalue()
