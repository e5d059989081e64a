"""Several runs as one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fenchel._checks import FenchelError
from fenchel.decoding import Ensemble
from fenchel.models import Seq2Seq
from fenchel.tasks._run import Run, open_run


def open_runs(directories: Sequence[Path]) -> list[Run]:
    """Read run directories whose models can be averaged: of one task, with one vocabulary."""
    if not directories:
        raise FenchelError("--run: expected at least one run directory, but got none.")
    first, *others = (open_run(Path(directory)) for directory in directories)
    for other in others:
        if other.task.name != first.task.name:
            raise FenchelError(
                f"{other.directory}: expected a run of {first.task.name}, as {first.directory} is, "
                f"but it is one of {other.task.name}."
            )
        if _vocabulary(other) != _vocabulary(first):
            raise FenchelError(
                f"{other.directory}: expected the vocabulary of {first.directory}, but it has "
                f"another; only models of the same training files can be averaged."
            )
    return [first, *others]


def ensemble(runs: Sequence[Run], device: str = "cpu") -> Seq2Seq | Ensemble:
    """The model of a run, or the average of the models of several, ready to predict."""
    models = [run.model(device) for run in runs]
    return models[0] if len(models) == 1 else Ensemble(models)


def _vocabulary(run: Run) -> list[bytes | None]:
    paths = (run.directory / name for name in ("source.json", "target.json"))
    return [path.read_bytes() if path.is_file() else None for path in paths]
