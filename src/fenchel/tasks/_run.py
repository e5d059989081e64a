"""A run directory: what was trained, how, and everything needed to use it.

======================  ==========================================================================
``run.json``            the format of the directory, the version that wrote it, the task, and the
                        SHA-256 of what gives meaning to the weights
``config.yaml``         all settings, each with a comment
``source.json`` …       vocabularies, or the tokenizer's own JSON
``checkpoints/``        weights as safetensors, state as JSON; ``checkpoints.json`` points to them
``metrics.jsonl``       one line for each record of training and validation
======================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fenchel._checks import FenchelError
from fenchel.decoding import Ensemble
from fenchel.models import Seq2Seq, build_model
from fenchel.runs import load_checkpoint, load_config, save_config
from fenchel.runs.about import check_digests, check_meaning, read_about, write_about
from fenchel.runs.directory import write_new
from fenchel.runs.machine import usable_device
from fenchel.tasks._task import Task
from fenchel.tasks.inflection import Inflection
from fenchel.tasks.run_config import RunConfig
from fenchel.tasks.translation import Summarization, Translation

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Inflection, Translation, Summarization)
}


@dataclass(frozen=True)
class Run:
    """A run on disk: its directory, its task with vocabularies, and its settings.

    ``meaning`` is the digest of the vocabularies and of the settings of model and task.
    """

    directory: Path
    task: Task
    config: RunConfig
    meaning: str

    def model(self, device: str = "cpu") -> Seq2Seq:
        """The model with the weights of its best checkpoint, ready to predict."""
        where = usable_device(device)
        checkpoint = load_checkpoint(self.directory, "best", model=self.empty_model())
        check_meaning(self.directory, self.meaning, checkpoint.state)
        model = build_model(self.config.model)
        checkpoint.load_weights(model)
        return model.eval().to(where)

    def new_model(self) -> Seq2Seq:
        """The model with fresh weights, the same for the same seed."""
        torch.manual_seed(self.config.train.seed)
        return build_model(self.config.model)

    def empty_model(self) -> Seq2Seq:
        """The model without memory for its weights, which knows their names and shapes."""
        with torch.device("meta"):
            return build_model(self.config.model)


def sized(config: RunConfig, task: Task) -> RunConfig:
    """The config, with the sizes of the task's vocabularies."""
    source, target = task.sizes
    model = replace(config.model, source_vocabulary=source, target_vocabulary=target)
    return replace(config, model=model)


def create_run(directory: Path, task: Task, config: RunConfig) -> Run:
    """Write a new run directory, whole or not at all."""
    config = sized(config, task)

    def write(partial: Path) -> str:
        task.save(partial)
        save_config(config, partial / "config.yaml")
        return write_about(partial, task.name, config).meaning

    return Run(directory, task, config, write_new(directory, write))


def open_run(directory: str | Path, task: str | None = None) -> Run:
    """Read a run directory; ``task`` is the one it has to be of.

    Everything is checked against its digest and its schema before it is used, and nothing is
    followed out of the directory.
    """
    directory = Path(directory)
    about = read_about(directory, TASKS if task is None else (task,))
    kind = TASKS[about.task]
    path = directory / "config.yaml"
    config = load_config(RunConfig, path)
    if type(config.task) is not type(kind.default_options()):
        raise FenchelError(
            f"{path}: expected `task.kind` of {about.task}, but got {config.task.kind!r}."
        )
    check_digests(directory, about, config)
    learned = kind.load(directory)
    sizes = (config.model.source_vocabulary, config.model.target_vocabulary)
    if learned.sizes != sizes:
        raise FenchelError(
            f"{path}: expected the sizes of the vocabularies, {learned.sizes[0]} and "
            f"{learned.sizes[1]}, but the model has {sizes[0]} and {sizes[1]}."
        )
    return Run(directory, learned, config, about.meaning)


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
