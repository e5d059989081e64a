"""What the demo shows: a table, words that the model is unsure of, and pictures."""

from __future__ import annotations

import io
import math
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from fenchel._compat import MissingDependency, require
from fenchel.analysis import plot_attention, plot_beam
from fenchel.cli._demo_files import DemoFiles
from fenchel.cli._output import literal
from fenchel.cli._shown import shown
from fenchel.decoding import Hypothesis, SearchResult
from fenchel.models import EOS
from fenchel.tasks import Example, Task

Prediction = tuple[Example, SearchResult]
WORDS = 3
ENOUGH_STEPS = 200  # updates; before that, what differs is how fast the first ones help
ENOUGH_RIGHT = 0.2
_BAR = 30
_END = "⏎"
_KINDS = ("beam", "attention")
PICTURES = [f"{kind}-{number}.png" for number in range(1, WORDS + 1) for kind in _KINDS]


class Measured(Protocol):
    """What the table shows of a model."""

    @property
    def scores(self) -> dict[str, float]: ...

    @property
    def steps(self) -> int: ...

    @property
    def tokens_per_second(self) -> float: ...


def show_scores(console: Any, trials: Mapping[str, Measured]) -> None:
    """The models side by side."""
    table = _rich("table").Table(box=_rich("box").SIMPLE_HEAD, pad_edge=False)
    table.add_column("On lemmas that training never saw")
    for name in trials:
        table.add_column(name, justify="right")
    rows = [
        ("right forms, English", "accuracy/english", "{:.1%}"),
        ("right forms, Russian", "accuracy/russian", "{:.1%}"),
        ("right forms, mean of both", "accuracy", "{:.1%}"),
        ("wrong characters per form", "edit_distance", "{:.2f}"),
        None,
        ("outputs proved best", "certified", "{:.1%}"),
        ("outputs with all alternatives listed", "exhaustive", "{:.1%}"),
        ("outputs that are one certified string", "single", "{:.1%}"),
        ("characters with p > 0, per step", "support", "{:.2f}"),
        None,
    ]
    for row in rows:
        if row is None:
            table.add_section()
            continue
        label, key, form = row
        cells = [form.format(trial.scores[key]) for trial in trials.values()]
        bold = "bold" if key in ("accuracy", "single") else ""
        table.add_row(label, *cells, style=bold)
    speeds = [f"{trial.tokens_per_second:,.0f}" for trial in trials.values()]
    table.add_row("updates in training", *(f"{trial.steps:,}" for trial in trials.values()))
    table.add_row("characters per second, in training", *speeds)
    console.print()
    console.print(table)


def show_worth(console: Any, trials: Sequence[Measured], wanted: int) -> None:
    """Say so if the table compares nothing: models that have not learned, or not long enough."""
    steps = min(trial.steps for trial in trials)
    best = max(trial.scores["accuracy"] for trial in trials)
    reasons = []
    if steps < ENOUGH_STEPS:
        fitted = f"only {steps:,} of {wanted:,} updates fitted" if steps < wanted else f"{steps:,}"
        reasons.append(fitted + (" into the time" if steps < wanted else " updates are too few"))
    if best < ENOUGH_RIGHT:
        reasons.append(f"the better model has {best:.1%} of the forms right")
    if reasons:
        late = steps < wanted
        more = "--minutes 10" if late else f"--steps {max(800, 2 * wanted)}"
        console.print(
            f"[b]This comparison means nothing:[/] {' and '.join(reasons)}. It shows how the "
            "models begin to learn, not which one is better in the end. Give them more "
            f"{'time' if late else 'updates'}, for example by `fenchel demo {more}`"
            + (", or try again when the machine is less busy.\n" if late else ".\n")
        )


def choose_unsure(predictions: Sequence[Prediction], count: int = WORDS) -> list[Prediction]:
    """Inputs with complete lists of a few forms, all of some weight: the most doubtful.

    Languages take turns, so that each is seen; a lemma is shown once.
    """
    by_group: dict[str, list[tuple[float, Prediction]]] = {}
    for example, result in predictions:
        complete = result.certificate.kind == "exhaustive"
        few = 2 <= result.found == len(result.hypotheses) <= 6
        if complete and few and result.hypotheses[-1].probability > 0.005:
            entropy = -math.fsum(h.probability * h.log_probability for h in result.hypotheses)
            by_group.setdefault(example.group, []).append((entropy, (example, result)))
    ranked = {
        group: [item for _, item in sorted(found, key=lambda pair: -pair[0])]
        for group, found in sorted(by_group.items())
    }
    chosen: list[Prediction] = []
    while len(chosen) < count and any(ranked.values()):
        for items in ranked.values():
            shown = {example.source for example, _ in chosen}
            fresh = [item for item in items if item[0].source not in shown]
            items[:] = fresh[1:]
            if fresh and len(chosen) < count:
                chosen.append(fresh[0])
    return chosen


def show_unsure(console: Any, task: Task, unsure: Sequence[Prediction]) -> None:
    """Each word with all its forms; the right one is marked."""
    if not unsure:
        console.print(
            "No word had a complete list of several forms; train longer, for example by "
            "`fenchel demo --minutes 10`."
        )
        return
    console.print(
        "[b]Words it is unsure of[/], each with all forms of probability above 0 "
        "([green]✓[/] right)\n"
    )
    width = max(len(shown(task.decode(h.tokens))) for _, r in unsure for h in r.hypotheses)
    for example, result in unsure:
        tags = ";".join(example.tags)
        console.print(
            f"  [b]{literal(example.source)}[/]  [dim]{literal(f'{example.group}, {tags}')}[/]"
        )
        for hypothesis in result.hypotheses:
            form = task.decode(hypothesis.tokens)
            cell = literal(f"{shown(form):<{width}}")
            right = form == example.target
            mark, colour = ("[green]✓[/]", "green") if right else (" ", "blue")
            bar = _bar(hypothesis.probability)
            console.print(f"  {mark} {cell}  {hypothesis.probability:6.1%} [{colour}]{bar}[/]")
        total = math.fsum(h.probability for h in result.hypotheses)
        console.print(f"    {'':<{width}}  [dim]{total:6.1%} in all: the search is exhaustive[/]\n")


def _bar(share: float) -> str:
    """A bar of up to ``_BAR`` cells, exact to an eighth of one."""
    eighths = max(1, round(8 * _BAR * share))
    return "█" * (eighths // 8) + ["", *"▏▎▍▌▋▊▉"][eighths % 8]


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


def show_next(console: Any, paths: Sequence[Path], out: Path, seconds: float) -> None:
    """What was written, and what to try."""
    if paths:
        console.print("[b]Pictures[/]  " + "\n          ".join(map(literal, paths)), soft_wrap=True)
    console.print(
        f"\n[b]Try[/]       printf 'withdraw\\tV;V.PTCP;PST\\n' | {literal(_command())} predict "
        f"--run {literal(shlex.quote(str(out / 'entmax')))} --language english --nbest 5",
        soft_wrap=True,
    )
    console.print(f"\n[dim]{seconds:.0f} s in all.[/]")


def _command() -> str:
    """How the shell finds ``fenchel``: by its path, if the environment is not active."""
    script = Path(sys.executable).with_name("fenchel")
    if shutil.which("fenchel") or not script.exists():
        return "fenchel"
    return shlex.quote(os.path.relpath(script))


def _rich(module: str) -> Any:
    return require(f"rich.{module}", extra="demo", purpose="the demo")
