"""What can be known to be wrong before a run directory is written, or a long file is read.

What trains is imported where it is called: whoever only predicts imports this file too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

import torch

from fenchel._checks import FenchelError
from fenchel._compat import require
from fenchel._short import short
from fenchel.models import build_model
from fenchel.runs.machine import check_fits
from fenchel.tasks._files import STDIN
from fenchel.tasks._run_config import DataConfig, RunConfig
from fenchel.tasks._task import Task

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
