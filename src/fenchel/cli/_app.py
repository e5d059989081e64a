from __future__ import annotations

from typing import Any

from cyclopts import App, Parameter

import fenchel
from fenchel.cli._demo import demo
from fenchel.cli._evaluate import evaluate
from fenchel.cli._output import make_console
from fenchel.cli._predict import predict
from fenchel.cli._train import inflection, summarization, translation


def make_app() -> Any:
    """The commands and their help."""
    app = App(
        name="fenchel",
        help="Sparse sequence-to-sequence models that list all answers they hold possible.",
        version=fenchel.__version__,
        default_parameter=Parameter(negative=(), json_list=False, json_dict=False),
        console=make_console(extra="train", purpose="help"),
    )
    train = App(name="train", help="Train a model on files and keep it in a run directory.")
    for task in (inflection, translation, summarization):
        train.command(task)
    commands: list[Any] = [train, predict, evaluate, demo]
    for command in commands:
        app.command(command)
    return app
