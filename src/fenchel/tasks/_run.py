"""A run directory: what was trained, how, and everything needed to use it.

======================  ==========================================================================
``run.json``            the format of the directory, the version that wrote it, and the task
``config.yaml``         all settings, each with a comment
``source.json`` …       vocabularies, or the tokenizer's own JSON
``checkpoints/``        weights as safetensors, state as JSON; ``checkpoints.json`` points to them
``metrics.jsonl``       one line for each record of training and validation
======================  ==========================================================================
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import fenchel
from fenchel._checks import FenchelError
from fenchel.models import Seq2Seq, build_model
from fenchel.tasks._run_config import RunConfig
from fenchel.tasks._task import Task
from fenchel.tasks.inflection import Inflection
from fenchel.tasks.translation import Summarization, Translation
from fenchel.training import load_checkpoint, load_config, save_config
from fenchel.training.distributed import claim, disown

FORMAT = 1
TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Inflection, Translation, Summarization)
}


@dataclass(frozen=True)
class Run:
    """A run on disk: its directory, its task with vocabularies, and its settings."""

    directory: Path
    task: Task
    config: RunConfig

    def model(self, device: str = "cpu") -> Seq2Seq:
        """The model with the weights of its best checkpoint, ready to predict."""
        model = build_model(self.config.model)
        load_checkpoint(self.directory, "best").load_weights(model)
        try:
            return model.eval().to(device)
        except (RuntimeError, AssertionError):  # torch raises either
            raise FenchelError(
                f"device: expected a device of this torch, as cpu or cuda, but got {device!r}."
            ) from None

    def new_model(self) -> Seq2Seq:
        """The model with fresh weights, the same for the same seed."""
        torch.manual_seed(self.config.train.seed)
        return build_model(self.config.model)


def check_new(directory: Path) -> None:
    """Refuse a directory that has something in it."""
    if (directory / "run.json").exists():
        disown(directory)
        raise FenchelError(
            f"{directory}: expected a new directory, but it holds a run; go on with it by "
            "`--resume`, or choose another."
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FenchelError(f"{directory}: expected a new or an empty directory; choose another.")


def sized(config: RunConfig, task: Task) -> RunConfig:
    """The config, with the sizes of the task's vocabularies."""
    source, target = task.sizes
    model = replace(config.model, source_vocabulary=source, target_vocabulary=target)
    return replace(config, model=model)


def create_run(directory: Path, task: Task, config: RunConfig) -> Run:
    """Write a new run directory, whole or not at all."""
    check_new(directory)
    config = sized(config, task)
    partial = directory.with_name(f".{directory.name}.partial")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    except OSError as error:
        raise FenchelError(
            f"{directory}: expected a directory that can be written ({error.strerror})."
        ) from None
    try:
        task.save(partial)
        save_config(config, partial / "config.yaml")
        about = {"format": FORMAT, "fenchel": fenchel.__version__, "task": task.name}
        (partial / "run.json").write_text(json.dumps(about, indent=1) + "\n")
        claim(partial)
        if directory.exists():
            directory.rmdir()
        os.replace(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Run(directory, task, config)


def open_run(directory: str | Path, task: str | None = None) -> Run:
    """Read a run directory; ``task`` is the one it has to be of."""
    directory = Path(directory)
    about = _about(directory)
    if about.get("format") != FORMAT:
        raise FenchelError(
            f"{directory}: expected a run of format {FORMAT}, but fenchel {about.get('fenchel')} "
            f"wrote it in format {about.get('format')}; use that version, or train again."
        )
    name = about.get("task")
    if name not in TASKS or (task is not None and name != task):
        wanted = task or " or ".join(TASKS)
        raise FenchelError(f"{directory}: expected a run of {wanted}, but it is one of {name}.")
    config = load_config(RunConfig, directory / "config.yaml")
    return Run(directory, TASKS[name].load(directory), config)


def _about(directory: Path) -> dict[str, Any]:
    path = directory / "run.json"
    if not directory.is_dir() or not path.is_file():
        missing = "no run.json" if directory.is_dir() else "no such directory"
        raise FenchelError(
            f"{directory}: expected a run directory, but there is {missing}; `fenchel train` makes "
            "one."
        )
    try:
        about = json.loads(path.read_text("utf-8"))
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise FenchelError(f"{path}: expected a JSON object, but the file is damaged.")
    return about
