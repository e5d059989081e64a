"""One training loop for every task: checks, files, and the session between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fenchel._checks import FenchelError
from fenchel.training._batches import check_lengths
from fenchel.training._checkpoint import Checkpoint, CheckpointStore
from fenchel.training._config import TrainConfig
from fenchel.training._errors import TrainingError
from fenchel.training._files import DISK_FULL, replace_file
from fenchel.training._interrupt import stop_on_signal
from fenchel.training._progress import make_progress
from fenchel.training._records import Records
from fenchel.training._resume import check_same_run
from fenchel.training._session import Session
from fenchel.training._task import Task, TrainResult, model_loss, pair_length
from fenchel.training._yaml import dump_config


class Trainer:
    """Trains a model, validates it, keeps checkpoints, and resumes where it was stopped.

    A run that was killed at any moment, and then resumed on the same machine with the same
    number of threads, ends with the same weights, bit for bit, as one that was not.

    Args:
        model: any module; its random initialisation is the caller's.
        examples: the training data.
        config: how to train.
        run_dir: a directory for checkpoints, ``metrics.jsonl`` and ``config.yaml``.
        collate: makes a batch of some examples; a batch has ``.tokens`` and ``.to(device)``. It
            must not draw random numbers except from torch, whose generators are resumed.
        validate: returns named numbers, ``config.metric`` among them. It runs in eval mode without
            gradients, and what it draws from torch's generators does not change the training.
        length: of an example, in tokens; by default that of a pair's longer side.
        loss: mean loss per token of a batch; by default ``model.loss(batch)``.
        extra: plain JSON stored in each checkpoint (the model's config, vocabularies).
        run_config: the dataclass to write as ``config.yaml``; by default ``config``.
        show_progress: on standard error, live if that is a terminal.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Sequence[Any],
        config: TrainConfig,
        run_dir: str | Path,
        *,
        collate: Callable[[list[Any]], Any],
        validate: Callable[[nn.Module], Mapping[str, float]],
        length: Callable[[Any], int] = pair_length,
        loss: Callable[[nn.Module, Any], Tensor] = model_loss,
        extra: Mapping[str, Any] | None = None,
        run_config: Any = None,
        show_progress: bool = True,
    ) -> None:
        lengths = [length(example) for example in examples]
        check_lengths(lengths)
        self.model, self.config, self.run_dir = model, config, Path(run_dir)
        self._task = Task(examples, lengths, collate, validate, loss, extra or {})
        self._run_config = config if run_config is None else run_config
        self._show_progress = show_progress
        self._store = CheckpointStore(self.run_dir, config.keep_checkpoints)

    def run(self, *, resume: bool = False) -> TrainResult:
        """Train until a limit is reached, or SIGINT (Ctrl-C) or SIGTERM asks to stop.

        Args:
            resume: go on from the latest checkpoint in ``run_dir``, or start if there is none.
                Without it, a directory that already holds a run is refused.

        Raises:
            TrainingError: the loss is not finite, or the disk is full; the last good checkpoint
                is kept.
        """
        checkpoint = self._find(resume)
        document = dump_config(self._run_config)
        threads = torch.get_num_threads()
        torch.set_num_threads(self.config.threads or threads)
        try:
            session = Session(self.model, self._task, self.config, self._store, checkpoint)
            self.run_dir.mkdir(parents=True, exist_ok=True)
            replace_file(self.run_dir / "config.yaml", document.encode())
            return self._run(session)
        except OSError as error:
            if error.errno in DISK_FULL:
                raise TrainingError(
                    f"the disk of {self.run_dir} is full; free some space and resume: "
                    f"{self._store.describe_latest()} is kept."
                ) from error
            raise
        finally:
            torch.set_num_threads(threads)

    def _find(self, resume: bool) -> Checkpoint | None:
        found = self._store.find()
        if found is None:
            return None
        if not resume:
            raise FenchelError(
                f"{self.run_dir}: expected a directory without a run, but it holds one; resume it "
                f"or choose another directory."
            )
        checkpoint = self._store.load()
        fixed = {
            field.name: getattr(self.config, field.name)
            for field in dataclasses.fields(self.config)
            if field.metadata["frozen"]
        }
        check_same_run(checkpoint, fixed, self._task.lengths)
        return checkpoint

    def _run(self, session: Session) -> TrainResult:
        session.records = Records(
            self.run_dir,
            size=session.state.records_bytes,
            step=session.state.step,
            tensorboard=self.config.tensorboard,
        )
        try:
            session.progress = make_progress(self._show_progress, session.total_steps())
            try:
                with stop_on_signal() as request:
                    return session.train(request)
            finally:
                session.progress.close()
        finally:
            session.records.close()
