from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cyclopts import App, Parameter

import fenchel
from fenchel.cli._output import make_console

_TASKS = ("inflection", "translation", "summarization")
_COMMANDS = ("predict", "evaluate", "demo")


def make_app(words: Sequence[str]) -> Any:
    """The commands and their help. Of a command that ``words`` do not call, nothing is imported."""
    app = App(
        name="fenchel",
        help="Sparse sequence-to-sequence models that list all answers they hold possible.",
        version=fenchel.__version__,
        default_parameter=Parameter(negative=(), json_list=False, json_dict=False),
        console=make_console(extra="train", purpose="help"),
    )
    train = App(name="train", help="Train a model on files and keep it in a run directory.")
    for task in _TASKS:
        train.command(f"fenchel.cli._train:{task}")
    app.command(train)
    for command in _COMMANDS:
        app.command(f"fenchel.cli._{command}:{command}")
    if not words or words[0] not in _COMMANDS:
        # A list of commands has the first line of each, for which they must be there.
        for parent, names in ((app, _COMMANDS), (train, _TASKS)):
            for name in names:
                parent[name]
    return app
