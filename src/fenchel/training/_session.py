"""One process's share of a run, from its start or a checkpoint to its end or a signal."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any, NoReturn

import torch
from torch import nn

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.runs import Checkpoint
from fenchel.runs.checkpoint import CheckpointStore, Tensors, tensors_of
from fenchel.runs.errors import TrainingError
from fenchel.runs.train_config import TrainConfig
from fenchel.training._interrupt import StopRequest
from fenchel.training._progress import Display
from fenchel.training._records import NoRecords, Records, observe
from fenchel.training._schedule import Schedule
from fenchel.training._state import RunState, TrainResult, judge, result_of
from fenchel.training.batches import Workload, bucketed_batches
from fenchel.training.distributed import Ranks
from fenchel.training.distributed._parallel import make_parallel
from fenchel.training.distributed._random import (
    gather_random,
    load_random,
    load_random_of_rank,
    random_tensors,
    seed_rank,
)
from fenchel.training.distributed._ranks import Agreement
from fenchel.training.distributed._tensors import (
    gather_to_write,
    load_optimizer,
    model_tensors,
    optimizer_tensors,
)

clock = time.perf_counter
_DIVERGED = 1e4  # times the first loss: no step comes back from there
_NO_BETTER = 10.0  # times the first loss, at the end: nothing was learned


class Session:
    """The loop itself. :class:`~fenchel.training.Trainer` opens its files and starts it."""

    records: Records | NoRecords
    progress: Display
    request: StopRequest
    loss = -math.inf  # of the last step, if this session has made one

    def __init__(
        self,
        model: nn.Module,
        workload: Workload,
        config: TrainConfig,
        store: CheckpointStore,
        checkpoint: Checkpoint | None,
        ranks: Ranks,
        device: torch.device,
    ) -> None:
        self.model, self.workload, self.config, self.store = model, workload, config, store
        self.ranks, self.device = ranks, device
        with ranks.all_or_none():
            self.state = RunState()
            if checkpoint is not None:
                path = checkpoint.path / "state.json"
                self.state = RunState.from_json(checkpoint.state, path)
            self.plan = self._batches()
            if self.state.batch > len(self.plan):
                raise FenchelError(
                    f"{checkpoint and checkpoint.path}: expected a state within its epoch of "
                    f"{len(self.plan)} batches, but got batch {self.state.batch}; the file "
                    f"state.json is damaged."
                )
            model.to(device)
            if checkpoint is not None:
                checkpoint.load_weights(model)
                del checkpoint.tensors["model"]  # room for the averages
        self.parallel = make_parallel(model, workload.loss, config, ranks, device)
        kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
        self.optimizer = kind(
            [{"params": group} for group in self.parallel.groups()],
            lr=config.learning_rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
        )
        self.schedule = Schedule(self.optimizer, config, self.state.step)
        if checkpoint is None:
            seed_rank(config.seed, ranks.rank)
        else:
            with ranks.all_or_none():
                self.schedule.load(self.state.schedule)
                load_optimizer(model, self.optimizer, tensors_of(checkpoint, "optimizer"))
                states = checkpoint.tensors["random"]
                load_random_of_rank(states, ranks.rank, config.seed, self.state.step)
        self.saved_step = self.state.step if checkpoint is not None else -1
        self.began = clock() - self.state.elapsed
        self.agreement = Agreement(ranks, self.state.elapsed)

    def total_steps(self) -> int | None:
        """How many updates the limits allow, as far as they say; epochs of tokens vary a little."""
        steps = [] if self.config.max_steps is None else [self.config.max_steps]
        if self.config.max_epochs is not None:
            steps.append(self.config.max_epochs * len(self.plan))
        return min(steps, default=None)

    def train(self, request: StopRequest) -> TrainResult:
        """Go on until a limit is reached or a stop is requested."""
        state, config, self.request = self.state, self.config, request
        if self.saved_step < 0:
            self.save()  # so that a run killed early resumes from the same weights
        self.model.train()
        while (reason := self._reason_to_stop()) is None:
            if state.batch == len(self.plan):
                state.epoch, state.batch = state.epoch + 1, 0
                self.plan = self._batches()
            self._step()
            if state.step % config.log_every == 0:
                self._log()
            if self._validation_is_due():
                self._validate()
            elif config.checkpoint_every and state.step % config.checkpoint_every == 0:
                self.save()
        if reason == "interrupted":
            if self.saved_step != state.step:
                self.save()
            self.progress.say(f"Stopped at step {state.step} with a checkpoint; resume to go on.")
        elif state.validated_step != state.step:
            self._validate()
        if reason != "interrupted" and not self._is_sound(self.loss, _NO_BETTER):
            first = f"{state.first_loss:g} at the first"
            self._give_up(f"the loss is {self.loss:g} at the last step, but was {first}")
        return result_of(state, reason, self._elapsed())

    def save(self, *, best: bool = False) -> None:
        """Write a checkpoint. The records go first: it says how many bytes of them are its own."""
        state = self.state
        state.records_bytes = self.records.sync()
        state.schedule = self.schedule.state()
        state.elapsed = self._elapsed()
        wholes = {"model": model_tensors(self.model)}
        wholes["optimizer"] = optimizer_tensors(self.model, self.optimizer)
        groups: dict[str, Tensors] = {**wholes, "random": gather_random(self.ranks)}
        document = {
            **asdict(state),
            "config": asdict(self.config),
            "data": self.workload.digest,
            "extra": dict(self.workload.extra),
        }
        gather_to_write(
            self.ranks, wholes.values(), lambda: self.store.save(groups, document, best=best)
        )
        self.saved_step = state.step

    def _batches(self) -> list[list[int]]:
        return bucketed_batches(
            self.workload.lengths,
            unit=self.config.batch_unit,
            size=self.config.batch_size,
            window=self.config.bucket_window,
            seed=self.config.seed,
            epoch=self.state.epoch,
        )

    def _elapsed(self) -> float:
        return clock() - self.began

    def _here(self) -> dict[str, Any]:
        return {"asked": self.request.requested, "elapsed": self._elapsed()}

    def _reason_to_stop(self) -> str | None:
        """Which limit is reached; decided by the state alone, so that a finished run stays so."""
        state, config = self.state, self.config
        asked, elapsed = self.agreement.on_stop(**self._here())
        if config.patience is not None and state.waited >= config.patience:
            return "patience"
        if config.max_steps is not None and state.step >= config.max_steps:
            return "max_steps"
        done = state.epoch - (state.batch < len(self.plan))
        if config.max_epochs is not None and done >= config.max_epochs:
            return "max_epochs"
        if config.max_minutes is not None and elapsed >= 60 * config.max_minutes:
            return "max_minutes"
        return "interrupted" if asked else None

    def _validation_is_due(self) -> bool:
        if self.config.validate_every is None:
            return self.state.batch == len(self.plan)
        return self.state.step % self.config.validate_every == 0

    def _step(self) -> None:
        """One update."""
        state, start = self.state, clock()
        planned = self.plan[state.batch]
        # A rank whose share is empty takes part all the same, with a batch that does not count.
        indices = self.ranks.shard(planned)
        batch = self.workload.collate([self.workload.examples[i] for i in indices or planned[:1]])
        own = int(batch.tokens) if indices else 0
        self.rate = self.schedule.rate
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16):
            loss = self.parallel.loss(batch.to(self.device), counts=own > 0)
        value, tokens = self.agreement.on_step(loss.item(), own, **self._here())
        if state.first_loss is None:
            state.first_loss = value
        self.loss = value
        if not self._is_sound(value, _DIVERGED):
            self._diverge("loss", value)
        self.parallel.backward(loss, own / max(tokens, 1))
        limit = math.inf if self.config.clip_norm is None else self.config.clip_norm
        self.norm = self.parallel.clip(limit)
        if not math.isfinite(self.norm):
            self._diverge("gradient's norm", self.norm)
        self.optimizer.step()
        self.schedule.updated()
        seconds = clock() - start
        state.step += 1
        state.batch += 1
        state.tokens += tokens
        state.train_seconds += seconds
        state.window_loss += value * tokens
        state.window_tokens += tokens
        state.window_seconds += seconds
        where = {"kind": "train", "epoch": state.epoch, "step": state.step}
        self.progress.step({**where, "loss": value, "learning_rate": self.rate})

    def _is_sound(self, loss: float, times: float) -> bool:
        """Whether it is a number, and not many times that of the first step."""
        return loss < times * max(1.0, abs(self.state.first_loss or 0.0))  # a NaN is not

    def _diverge(self, what: str, value: float) -> NoReturn:
        state = self.state
        where = f"epoch {state.epoch}, batch {state.batch + 1} of {len(self.plan)}"
        self._give_up(f"the {what} is {value:g} at step {state.step + 1} ({where})")

    def _give_up(self, why: str) -> NoReturn:
        kept = self.store.describe_latest()
        self.ranks.fail(TrainingError(f"{why}; lower learning_rate or clip_norm: {kept} is kept."))

    def _log(self) -> None:
        """Write the averages since the last line."""
        state = self.state
        tokens, seconds = state.window_tokens, state.window_seconds
        with self.parallel.evaluating():
            seen = observe(self.model)
        record = {
            "kind": "train",
            "step": state.step,
            "epoch": state.epoch,
            "loss": state.window_loss / tokens if tokens else None,
            "learning_rate": self.rate,
            "gradient_norm": self.norm,
            "tokens": state.tokens,
            **seen,
            "tokens_per_second": tokens / seconds if seconds else None,
            "seconds": self._elapsed(),
        }
        state.window_loss, state.window_tokens, state.window_seconds = 0.0, 0, 0.0
        self.records.write(record)
        self.progress.log(record)

    def _validate(self) -> None:
        """Validate, take note of it, and save."""
        state = self.state
        metrics = self._metrics()
        improved, failed = judge(state, self.config, metrics[self.config.metric])
        state.metrics = {k: v if math.isfinite(v) else None for k, v in metrics.items()}
        if improved or failed:
            self.schedule.validated(improved)
        record = {
            "kind": "validation",
            "step": state.step,
            "epoch": state.epoch,
            "metrics": metrics,
            "improved": improved,
            "seconds": self._elapsed(),
        }
        self.records.write(record)
        self.progress.log(record)
        self.save(best=improved)

    def _metrics(self) -> dict[str, float]:
        random = random_tensors()
        self.model.eval()
        with torch.no_grad(), self.parallel.evaluating():
            metrics = {name: float(v) for name, v in self.workload.validate(self.model).items()}
        self.model.train()
        load_random(random)
        metrics = self.ranks.first(metrics)
        if self.config.metric not in metrics:
            error = FenchelError(
                f"Trainer: expected `validate` to return the metric {short(self.config.metric)}, "
                f"but got {', '.join(metrics) or 'none'}; set `metric` to one of them."
            )
            self.ranks.fail(error)
        return metrics
