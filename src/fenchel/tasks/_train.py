"""Runs that are started, resumed and trained; what can be known to be wrong is said at once,
before a run directory is written or a long file is read.

What trains is imported where it is called: to predict with a run, this file is imported too, and
nothing else of training is needed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from fenchel._checks import FenchelError
from fenchel._compat import require
from fenchel._short import short
from fenchel.models import UNK, Batch, Seq2Seq, build_model
from fenchel.runs.about import MEANING, check_meaning
from fenchel.runs.checkpoint import CheckpointStore, same_weights
from fenchel.runs.config_file import override
from fenchel.runs.directory import check_new, check_writable
from fenchel.runs.machine import check_fits
from fenchel.runs.owner import RunLock
from fenchel.tasks._predict import best_answers
from fenchel.tasks._run import TASKS, Run, create_run, open_run, sized
from fenchel.tasks._task import Task
from fenchel.tasks.files import STDIN, unquoted
from fenchel.tasks.run_config import DataConfig, ModelKind, RunConfig, default_config, fit
from fenchel.tasks.translation import TextConfig

if TYPE_CHECKING:
    from fenchel.training import TrainResult
    from fenchel.training.distributed import Ranks

_NOT_SET = {
    "data.train": "name the files by `--train`",
    "data.dev": "name the files by `--dev`",
    "data.language": "name it by `--language`",
    "model.source_vocabulary": "it is counted in the training files",
    "model.target_vocabulary": "it is counted in the training files",
}


def check_settings(settings: Sequence[str]) -> None:
    """Refuse what ``--set`` would say in vain: it is known from elsewhere."""
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key in _NOT_SET:
            raise FenchelError(
                f"--set: expected settings other than {key}, but got {short(setting)}; "
                f"{_NOT_SET[key]}."
            )


def check_files(data: DataConfig) -> None:
    """Refuse what cannot be read twice: training reads its files again when it resumes."""
    for option, paths in (("--train", data.train), ("--dev", data.dev)):
        for path in paths:
            if path == STDIN:
                raise FenchelError(
                    f"{option}: expected files, because they are read again when training resumes, "
                    f"but got - (standard input); write it to a file first."
                )
            try:
                mode = os.stat(path).st_mode
            except (OSError, ValueError):
                continue  # whoever reads it says what is wrong
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                kind = "pipe" if stat.S_ISFIFO(mode) else "device or a socket"
                raise FenchelError(
                    f"{path}: expected a regular file, because it is read again when training "
                    f"resumes, but it is a {kind}; write it to a file first."
                )


def check_training(task: type[Task], config: RunConfig) -> None:
    """Check what shows only when training is under way: metric, device, other packages."""
    from fenchel.training.distributed import Ranks, find_device

    train = config.train
    if train.metric not in task.metrics:
        raise FenchelError(
            f"train.metric: expected one of {', '.join(task.metrics)} for {task.name}, but got "
            f"{short(train.metric)}."
        )
    if train.mode != task.metrics[train.metric]:
        raise FenchelError(
            f"train.mode: expected {task.metrics[train.metric]} for the metric {train.metric}, but "
            f"got {train.mode}."
        )
    find_device(train.device, Ranks())
    if train.tensorboard:
        require("tensorboard", extra="tensorboard", purpose="`tensorboard: true`")


def check_trainable(config: RunConfig) -> None:
    """Check that the model can be built, trained by these processes, and has room."""
    from fenchel.training.distributed import Ranks, check_parallel

    ranks = Ranks()
    with torch.device("meta"):  # a model without weights tells as much
        model = build_model(config.model)
    check_parallel(model, config.train, ranks)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    here = ranks.size == 1 and config.train.device == "cpu"
    check_fits("model", weights * (4 if here else 1))  # gradients, and Adam's two averages


Note = Callable[[str], None]
Pair = tuple[list[int], list[int]]


def start_run(
    directory: str | Path,
    task: str,
    data: DataConfig,
    *,
    model: ModelKind = "lstm",
    settings: Sequence[str] = (),
) -> Run:
    """Read the training files, learn the vocabularies, and write a new run directory.

    Args:
        directory: new or empty.
        task: which one.
        data: its files; all of them are read once, so that errors show before training.
        model: the kind.
        settings: overrides, as ``"train.learning_rate=0.01"``.
    """
    directory = Path(directory)
    check_new(directory)
    if not data.train or not data.dev:
        missing = "--dev" if data.train else "--train"
        raise FenchelError(f"{missing}: expected at least one file, but got none.")
    check_settings(settings)
    check_files(data)
    check_writable(directory)
    kind = TASKS[task]
    data = _absolute(data)
    default = replace(default_config(kind, model), data=data)
    config = override(default, settings)
    check_training(kind, config)
    check_trainable(_of_any_size(config))
    examples = list(kind.read_gold(data.train, data.language))
    for _ in kind.read_gold(data.dev, data.language):
        pass
    learned = kind.from_options(examples, config.task)
    pairs = _short_enough(list(map(learned.pair, examples)), config, _ignore)
    if not pairs:
        raise FenchelError(
            "task.max_tokens: expected a limit that leaves training pairs, but all have a side of "
            f"more than {_limit(config)} tokens."
        )
    config = sized(fit(default, settings, pairs), learned)
    check_trainable(config)
    return create_run(directory, learned, config)


def resume_run(directory: str | Path, task: str, data: DataConfig, settings: Sequence[str]) -> Run:
    """Open a run to go on with; files that are not named are those it was started with.

    Settings of the model and of the task are those of its weights and vocabularies, and cannot
    be others.
    """
    check_settings(settings)
    check_files(data)
    run = open_run(directory, task)
    config = override(run.config, settings)
    _check_unchanged(run.directory, run.config, config)
    check_training(TASKS[run.task.name], config)
    check_trainable(config)
    kept = {name: value for name, value in vars(_absolute(data)).items() if value}
    return replace(run, config=replace(config, data=replace(config.data, **kept)))


def prepare_run(
    directory: Path,
    task: str,
    data: DataConfig,
    ranks: Ranks,
    *,
    model: ModelKind | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
) -> tuple[Run, bool]:
    """Start a run or open it to go on with, together: rank 0 starts it, then all open it.

    Returns:
        The run, and whether to resume it: also if ``torchrun`` has restarted the job that began it.
    """
    from fenchel.training.distributed import is_own_restart

    resume = is_own_restart(directory, ranks) or resume
    with ranks.all_or_none():
        if ranks.leads and not resume:
            start_run(directory, task, data, model=model or "lstm", settings=settings)
    with ranks.all_or_none():
        run = resume_run(directory, task, data, settings if resume else ())
        if model not in (None, run.config.model.kind):
            raise FenchelError(
                f"--model: expected {run.config.model.kind}, as the run was started, but got "
                f"{model}."
            )
    return run, resume


def train_run(
    run: Run, *, resume: bool = False, note: Note = print, show_progress: bool = True
) -> TrainResult:
    """Train the model of a run.

    Args:
        run: from :func:`start_run` or :func:`resume_run`.
        resume: go on from its latest checkpoint, if there is one.
        note: is told in one sentence what is left out of the data; by rank 0, of several.
        show_progress: on standard error.
    """
    from fenchel.training.distributed import join_ranks

    with join_ranks() as joined:
        ranks = joined.with_timeout(run.config.train.timeout_minutes)
        return _train_run(run, ranks, resume, note if ranks.leads else _ignore, show_progress)


def _train_run(
    run: Run, ranks: Ranks, resume: bool, note: Note, show_progress: bool
) -> TrainResult:
    from fenchel.training import Trainer

    task, config = run.task, run.config
    data = config.data
    with ranks.all_or_none(), unquoted():
        pairs = [task.pair(example) for example in task.read_gold(data.train, data.language)]
        pairs = _short_enough(pairs, config, note)
        dev = list(task.read_gold(data.dev, data.language))
    search = config.search

    def validate(model: nn.Module) -> dict[str, float]:
        assert isinstance(model, Seq2Seq)
        # Sharded weights are gathered at each step, for which all ranks must take the same steps.
        lockstep = config.train.parallel == "fsdp"
        share = dev if lockstep else ranks.shard(dev)
        answers = best_answers(
            model, task, share, beam=search.validation_beam, max_length=search.max_length
        )
        answers = answers if lockstep else ranks.gather_shards(answers)
        scores = task.score(dev, answers)
        return {name: value for name, value in scores.items() if "/" not in name}

    with ranks.all_or_none():
        if resume:
            _check_checkpoint(run, ranks)
    trainer = Trainer(
        run.new_model(),
        pairs,
        config.train,
        run.directory,
        collate=Batch.collate,
        validate=validate,
        extra={MEANING: run.meaning},
        run_config=config,
        show_progress=show_progress,
    )
    return trainer.run(resume=resume)


def _check_checkpoint(run: Run, ranks: Ranks) -> None:
    """Check that there is a checkpoint of this very run, or none, before memory is taken for it."""
    store = CheckpointStore(run.directory)
    with closing(RunLock(run.directory)) as lock:
        if ranks.leads:
            lock.acquire()  # else what is checked may be gone: the trainer takes it again
        if store.find() is not None:
            checks = {"model": same_weights(run.empty_model())}
            state = store.load(groups=(), later=("model",), checks=checks).state
            check_meaning(run.directory, run.meaning, state)


def _ignore(sentence: str) -> None:
    """Other ranks than the first have nothing to say."""


def _absolute(data: DataConfig) -> DataConfig:
    """Files by their whole paths: a run may be resumed from elsewhere."""
    train, dev = (tuple(map(os.path.abspath, paths)) for paths in (data.train, data.dev))
    return replace(data, train=train, dev=dev)


def _check_unchanged(directory: Path, was: RunConfig, config: RunConfig) -> None:
    for part in ("model", "task"):
        new = vars(getattr(config, part))
        for name, value in vars(getattr(was, part)).items():
            if new[name] != value:
                raise FenchelError(
                    f"{directory}: expected to resume with {part}.{name} = {short(value)} as the "
                    f"run was started, but got {short(new[name])}; use another directory to "
                    f"change it."
                )


def _limit(config: RunConfig) -> int | None:
    return config.task.max_tokens if isinstance(config.task, TextConfig) else None


def _of_any_size(config: RunConfig) -> RunConfig:
    """With the smallest vocabularies: what is wrong without them need not wait for files."""
    model = replace(config.model, source_vocabulary=UNK + 1, target_vocabulary=UNK + 1)
    return replace(config, model=model)


def _short_enough(pairs: list[Pair], config: RunConfig, note: Note) -> list[Pair]:
    limit = _limit(config)
    kept = [pair for pair in pairs if limit is None or max(map(len, pair)) <= limit]
    if len(kept) < len(pairs):
        note(
            f"{len(pairs) - len(kept)} of {len(pairs)} training pairs have a side of more than "
            f"{limit} tokens and are left out."
        )
    return kept
