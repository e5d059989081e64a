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

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fenchel._checks import FenchelError
from fenchel.models import Seq2Seq, build_model
from fenchel.tasks._run_config import RunConfig
from fenchel.tasks._run_files import ABOUT, check_digests, check_meaning, read_about, write_about
from fenchel.tasks._task import Task
from fenchel.tasks.inflection import Inflection
from fenchel.tasks.translation import Summarization, Translation
from fenchel.training import load_checkpoint, load_config, save_config
from fenchel.training._files import sync_directory
from fenchel.training.distributed import claim, disown, usable_device

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Inflection, Translation, Summarization)
}
_OF_THE_SYSTEM = "lost+found"  # is in every new file system


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


def check_new(directory: Path) -> None:
    """Refuse a directory that has something in it."""
    if (directory / ABOUT).exists():
        disown(directory)
        raise FenchelError(
            f"{directory}: expected a new directory, but it holds a run; go on with it by "
            "`--resume`, or choose another."
        )
    try:
        used = os.path.lexists(directory) and (not directory.is_dir() or not _is_empty(directory))
    except OSError as error:
        raise _not_writable(directory, error) from None
    if used:
        raise FenchelError(f"{directory}: expected a new or an empty directory; choose another.")


def sized(config: RunConfig, task: Task) -> RunConfig:
    """The config, with the sizes of the task's vocabularies."""
    source, target = task.sizes
    model = replace(config.model, source_vocabulary=source, target_vocabulary=target)
    return replace(config, model=model)


def create_run(directory: Path, task: Task, config: RunConfig) -> Run:
    """Write a new run directory, whole or not at all.

    A new one is renamed into its place. One that is there and empty may be a mount point, a link or
    the current directory, which cannot be replaced: files are moved into it, ``run.json`` last.
    """
    check_new(directory)
    config = sized(config, task)
    there = directory.is_dir()
    whole = Path(os.path.abspath(directory))
    try:
        if not there:
            whole.parent.mkdir(parents=True, exist_ok=True)
        parent = directory if there else whole.parent
        partial = Path(tempfile.mkdtemp(prefix=f".{whole.name}.", suffix=".partial", dir=parent))
    except OSError as error:
        raise _not_writable(directory, error) from None
    try:
        task.save(partial)
        save_config(config, partial / "config.yaml")
        about = write_about(partial, task.name, config)
        claim(partial)
        _put_in_place(partial, directory, whole, there)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Run(directory, task, config, about.meaning)


def _put_in_place(partial: Path, directory: Path, whole: Path, there: bool) -> None:
    if there:
        names = sorted(os.listdir(partial), key=lambda name: name == ABOUT)
        for name in names:
            os.replace(partial / name, directory / name)
        sync_directory(directory)
        return
    # A directory made for one person only would be a surprise to the others.
    mask = os.umask(0)
    os.umask(mask)
    partial.chmod(0o777 & ~mask)
    try:
        os.replace(partial, whole)
    except OSError:
        check_new(directory)  # of another process, that was quicker
        raise
    sync_directory(whole.parent)


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


def _is_empty(directory: Path) -> bool:
    return all(path.name == _OF_THE_SYSTEM for path in directory.iterdir())


def _not_writable(directory: Path, error: OSError) -> FenchelError:
    return FenchelError(
        f"{directory}: expected a directory that can be written ({error.strerror})."
    )
