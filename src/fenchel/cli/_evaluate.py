from __future__ import annotations

import json
from typing import Annotated, Literal

from cyclopts import Parameter

from fenchel._compat import require
from fenchel.cli._options import (
    Beam,
    Budget,
    Flag,
    Language,
    Length,
    Lines,
    Runs,
    check_device,
    check_run_name,
)
from fenchel.cli._output import answer_json, literal, make_console, note
from fenchel.cli._predict import WAITING, search_options, waits_for_terminal, with_notes
from fenchel.tasks import ensemble, open_runs
from fenchel.tasks import evaluate as evaluate_task

_NAMES = {
    "accuracy": "accuracy",
    "edit_distance": "mean edit distance",
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "certified": "best answer proved",
    "exhaustive": "all answers listed",
    "single": "one answer only",
    "support": "tokens with p > 0 at a step",
}
_SHARES = {"accuracy", "certified", "exhaustive", "single"}


def evaluate(
    files: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    run: Runs,
    beam: Beam | None = None,
    exact: Flag = False,
    budget: Budget | None = None,
    max_length: Length | None = None,
    language: Language | None = None,
    format: Literal["table", "json"] = "table",
    batch: Lines = 64,
    device: str = "cpu",
) -> None:
    """Compare a model's answers with the gold ones of files.

    Prints the task's metrics, how often the search could prove its answer, and how many tokens had
    a probability above 0.

    Args:
        files: Files with answers, as for training; - is standard input.
        run: Directory of the trained model; given several times, the average of the models.
        beam: Beam width (default: the run's).
        exact: Search until the answer is proved best, instead of with a beam.
        budget: With --exact: how many prefixes to try at most, per line (default: 10000).
        max_length: The longest answer, in tokens (default: the run's).
        language: Inflection: the language, instead of what the file's name says.
        format: A table, or one JSON object.
        batch: Lines that are answered together.
        device: Where to compute: cpu, cuda.
    """
    check_device(device)
    for directory in run:
        check_run_name("--run", directory)
    runs = open_runs(run)
    opened = runs[0]
    options = search_options(opened, beam, 1, exact, budget, max_length, batch)
    if waits_for_terminal(files):
        note(WAITING)
    examples = list(opened.task.read(files, language=language))
    model = ensemble(runs, device)
    scores = evaluate_task(model, opened.task, with_notes(opened.task, examples), options)
    if format == "json":
        answer_json(json.dumps({"examples": len(examples), **scores}, ensure_ascii=False))
    else:
        _print_table(scores, len(examples), ", ".join(map(str, run)))


def _print_table(scores: dict[str, float], count: int, title: str) -> None:
    console = make_console(extra="train", purpose="a table")
    table = require("rich.table", extra="train", purpose="a table").Table(
        title=literal(f"{title}: {count:,} examples"),
        title_justify="left",
        box=None,
        pad_edge=False,
        show_header=False,
    )
    table.add_column("")
    table.add_column("", justify="right")
    for key, value in scores.items():
        base, _, group = key.partition("/")
        name = f"  {_NAMES.get(base, base)}, {group}" if group else _NAMES.get(base, base)
        text = f"{100 * value:.2f} %" if base in _SHARES else f"{value:.2f}"
        table.add_row(literal(name), text)
    console.print(table)
