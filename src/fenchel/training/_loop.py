"""One training loop for every task: checks, files, and the session between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fenchel._checks import FenchelError
from fenchel.runs import Checkpoint
from fenchel.runs.checkpoint import CheckpointStore, same_weights
from fenchel.runs.config_file import dump_config
from fenchel.runs.digest import digest_examples
from fenchel.runs.errors import TrainingError
from fenchel.runs.files import DISK_FULL, replace_file
from fenchel.runs.owner import RunLock, claim, release_claim
from fenchel.runs.train_config import TrainConfig
from fenchel.training._interrupt import stop_on_signal
from fenchel.training._progress import make_progress
from fenchel.training._records import NoRecords, Records
from fenchel.training._session import Session
from fenchel.training._state import TrainResult, check_same_run
from fenchel.training.batches import Workload, check_lengths, model_loss, pair_length
from fenchel.training.distributed import (
    Ranks,
    check_parallel,
    find_device,
    is_own_restart,
    join_ranks,
)
from fenchel.training.distributed._random import sound_states
from fenchel.training.distributed._ranks import explain_loss_of
from fenchel.training.distributed._tensors import same_parameters


class Trainer:
    """Trains a model, validates it, keeps checkpoints, and resumes where it was stopped.

    A run that was killed at any moment, and then resumed on the same machine with the same
    number of threads, ends with the same weights, bit for bit, as one that was not.

    Under ``torchrun``, or in a process group, the ranks train one model together: each takes its
    share of every batch, the gradient is that of the mean over all tokens, and rank 0 alone writes
    to ``run_dir``, which all of them must see. A run may be resumed by another number of ranks.

    Rank 0 holds a lock on ``run_dir`` while it trains: a second process is refused there.

    Args:
        model: any module; its random initialisation is the caller's.
        examples: the training data; a resumed run must have the same (see the digest in
            ``state.json``).
        config: how to train.
        run_dir: a directory for checkpoints, ``metrics.jsonl`` and ``config.yaml``.
        collate: makes a batch of some examples; a batch has ``.tokens`` and ``.to(device)``. It
            must not draw random numbers except from torch, whose generators are resumed.
        validate: returns named numbers, ``config.metric`` among them. It runs in eval mode without
            gradients, and what it draws from torch's generators does not change the training. Every
            rank calls it, and what rank 0 returns counts.
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
        digest = digest_examples(examples, lengths)
        self._workload = Workload(examples, lengths, collate, validate, loss, extra or {}, digest)
        self._run_config = config if run_config is None else run_config
        self._show_progress = show_progress
        self._store = CheckpointStore(self.run_dir, config.keep_checkpoints)

    def run(self, *, resume: bool = False) -> TrainResult:
        """Train until a limit is reached, or SIGINT (Ctrl-C) or SIGTERM asks to stop.

        Args:
            resume: go on from the latest checkpoint in ``run_dir``, or start if there is none.
                Without it, a directory that already holds a run is refused, unless ``torchrun`` has
                restarted the job that began it.

        Raises:
            TrainingError: the loss is not finite, the disk is full, or another rank is gone; the
                last good checkpoint is kept.
            fenchel.runs.errors.RankError: another rank raises one of these, or a FenchelError.
        """
        with join_ranks() as joined:
            ranks = joined.with_timeout(self.config.timeout_minutes)
            threads = torch.get_num_threads()
            torch.set_num_threads(self.config.threads or threads)
            try:
                with explain_loss_of(ranks), closing(RunLock(self.run_dir)) as lock:
                    return self._run(self._start(ranks, resume, lock))
            except OSError as error:
                if error.errno in DISK_FULL:
                    raise TrainingError(
                        f"the disk of {self.run_dir} is full; free some space and resume: "
                        f"{self._store.describe_latest()} is kept."
                    ) from error
                raise
            finally:
                torch.set_num_threads(threads)

    def _start(self, ranks: Ranks, resume: bool, lock: RunLock) -> Session:
        """Check and read everything; nothing is written before all ranks are content."""
        resume = is_own_restart(self.run_dir, ranks) or resume
        with ranks.all_or_none():
            if ranks.leads and self.run_dir.is_dir() and (resume or self._store.find() is None):
                lock.acquire()  # first: what is read must not change any more
            device = find_device(self.config.device, ranks)
            own = self._workload.loss is model_loss
            check_parallel(self.model, self.config, ranks, own_loss=own)
            checkpoint = self._find(resume)
            document = dump_config(self._run_config)
        self._check_same_view(ranks, checkpoint)
        session = Session(
            self.model, self._workload, self.config, self._store, checkpoint, ranks, device
        )
        with ranks.all_or_none():
            if ranks.leads:
                self.run_dir.mkdir(parents=True, exist_ok=True)
                lock.acquire()
                if checkpoint is None:
                    self._find(resume=False)  # of a process that was quicker
                claim(self.run_dir)
                replace_file(self.run_dir / "config.yaml", document.encode())
        return session

    def _check_same_view(self, ranks: Ranks, checkpoint: Checkpoint | None) -> None:
        """Ranks on several machines may see other directories, or other data."""
        name = None if checkpoint is None else checkpoint.path.name
        views = ranks.gather((name, self._workload.digest))
        kinds = ("checkpoint", "training data")
        for what, seen in zip(kinds, zip(*views, strict=True), strict=True):
            if len(set(seen)) > 1:
                error = FenchelError(
                    f"{self.run_dir}: expected all ranks to see the same {what}, but they see "
                    f"{', '.join(map(str, seen))}; put files where every machine can read them."
                )
                ranks.fail(error)

    def _find(self, resume: bool) -> Checkpoint | None:
        found = self._store.find()
        if found is None:
            return None
        if not resume:
            release_claim(self.run_dir)
            raise FenchelError(
                f"{self.run_dir}: expected a directory without a run, but it holds one; resume it "
                f"or choose another directory."
            )
        checks = {
            "model": same_weights(self.model),
            "optimizer": same_parameters(self.model),
            "random": sound_states,
        }
        checkpoint = self._store.load(
            groups=("model", "random"), later=("optimizer",), checks=checks
        )
        fixed = {
            field.name: getattr(self.config, field.name)
            for field in dataclasses.fields(self.config)
            if field.metadata["frozen"]
        }
        check_same_run(checkpoint, fixed, self._workload.digest)
        return checkpoint

    def _run(self, session: Session) -> TrainResult:
        leads = session.ranks.leads
        session.records = self._open_records(session) if leads else NoRecords()
        try:
            show = self._show_progress and leads
            session.progress = make_progress(show, session.total_steps())
            try:
                with stop_on_signal(patient=session.ranks.size > 1) as request:
                    return session.train(request)
            finally:
                session.progress.close()
        finally:
            session.records.close()

    def _open_records(self, session: Session) -> Records:
        return Records(
            self.run_dir,
            size=session.state.records_bytes,
            step=session.state.step,
            tensorboard=self.config.tensorboard,
        )
