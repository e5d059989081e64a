"""What a training run does, as one flat dataclass whose fields explain themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.runs.typed import MANY, check_whole, setting


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Every field has its help text in ``metadata["help"]``, as the YAML shows it.

    ``None`` always means "off" or "no limit". A resumed run keeps what decides the weights
    (batches, optimizer, schedule, seed); limits, logging and what is kept may change.

    Example:
        >>> TrainConfig(learning_rate=0.01, max_epochs=3).schedule
        'plateau'
    """

    batch_unit: Literal["sentences", "tokens"] = setting(
        "sentences", "What batch_size counts: sentences, or tokens with padding."
    )
    batch_size: int = setting(
        64, "Size of a batch, in units of batch_unit; that of all processes together."
    )
    bucket_window: int = setting(
        2048, "Examples sorted by length together, so that a batch has little padding; 1 = none."
    )
    optimizer: Literal["adam", "adamw"] = setting(
        "adam", "adam adds weight_decay to the gradient, adamw shrinks the weights instead."
    )
    learning_rate: float = setting(0.001, "Learning rate; the peak, where the schedule warms up.")
    betas: tuple[float, float] = setting((0.9, 0.999), "Adam's decay rates of its two averages.")
    weight_decay: float = setting(0.0, "Weight decay; 0 = none.")
    schedule: Literal["plateau", "inverse_sqrt", "linear", "constant"] = setting(
        "plateau",
        "plateau: cut when validation does not improve; inverse_sqrt: warm up, fall; linear: warm "
        "up, fall to 0 at max_steps; constant.",
    )
    plateau_factor: float = setting(0.5, "plateau: what the learning rate is multiplied by.")
    plateau_patience: int = setting(
        0, "plateau: validations without improvement that are forgiven before each cut."
    )
    warmup_steps: int = setting(4000, "inverse_sqrt and linear: steps of warm-up.")
    clip_norm: float | None = setting(
        5.0, "Longest gradient, in norm, that is not scaled down; null = any."
    )
    bf16: bool = setting(False, "Compute the loss in bfloat16 where autocast finds it safe.")
    device: str = setting("cpu", "Where to train: cpu, cuda, cuda:1, mps.", frozen=False)
    threads: int | None = setting(None, "CPU threads of torch; null = as it is set.", frozen=False)
    seed: int = setting(
        0, "Seed of the order of the examples and of dropout; of a run, also of its first weights."
    )
    max_epochs: int | None = setting(
        30, "Stop after so many epochs; null = no limit.", frozen=False
    )
    max_steps: int | None = setting(
        None, "Stop after so many updates; null = no limit.", frozen=False
    )
    max_minutes: float | None = setting(
        None, "Stop after so many minutes, validation included; null = no limit.", frozen=False
    )
    validate_every: int | None = setting(None, "Validate every so many steps; null = every epoch.")
    metric: str = setting("loss", "The validation metric that decides which weights are best.")
    mode: Literal["min", "max"] = setting("min", "Whether a small or a large metric is good.")
    patience: int | None = setting(
        None,
        "Stop after so many validations in a row without improvement; null = never.",
        frozen=False,
    )
    log_every: int = setting(50, "Write a line of metrics every so many steps.", frozen=False)
    checkpoint_every: int | None = setting(
        None,
        "Write a checkpoint every so many steps as well as at validations; null = only there.",
        frozen=False,
    )
    keep_checkpoints: int = setting(
        1, "How many of the last checkpoints to keep beside the best one.", frozen=False
    )
    tensorboard: bool = setting(False, "Write the metrics for TensorBoard as well.", frozen=False)
    parallel: Literal["ddp", "fsdp"] = setting(
        "ddp",
        "With several processes: ddp, each has the whole model; fsdp, each has a part of every "
        "layer (Transformer only).",
        frozen=False,
    )
    vocabulary_parallel: bool = setting(
        False,
        "With several processes: deal the output layer's tokens out, to each its share of them.",
        frozen=False,
    )
    timeout_minutes: float = setting(
        30.0, "With several processes: how long one waits for another, then fails.", frozen=False
    )

    def __post_init__(self) -> None:
        """Check each value; a wrong one is named with what was expected."""
        for name, low, high in (
            ("batch_size", 1, MANY),
            ("bucket_window", 1, MANY),
            ("warmup_steps", 1, MANY),
            ("log_every", 1, MANY),
            ("keep_checkpoints", 1, MANY),
            ("seed", 0, 2**63 - 1),
            ("plateau_patience", 0, MANY),
        ):
            check_whole("TrainConfig", name, getattr(self, name), low, high)
        for name, high in (
            ("max_epochs", MANY),
            ("max_steps", MANY),
            ("validate_every", MANY),
            ("patience", MANY),
            ("checkpoint_every", MANY),
            ("threads", 1024),
        ):
            value = getattr(self, name)
            if value is not None:
                check_whole("TrainConfig", name, value, 1, high, ", or None")
        for name in ("clip_norm", "max_minutes"):
            good = getattr(self, name) is None or self._is_number(name, 0.0, math.inf)
            self._check(name, good, "a number above 0, or None")
        for name, most in (("learning_rate", 10.0), ("timeout_minutes", 60.0 * 24 * 365)):
            self._check(name, self._is_number(name, 0.0, math.inf), "a number above 0")
            self._check(name, getattr(self, name) <= most, f"a number of at most {most:g}")
        self._check(
            "plateau_factor", self._is_number("plateau_factor", 0.0, 1.0), "between 0 and 1"
        )
        decay = self.weight_decay == 0 or self._is_number("weight_decay", 0.0, math.inf)
        self._check("weight_decay", decay, "a number of at least 0")
        for name in ("bf16", "tensorboard", "vocabulary_parallel"):
            self._check(name, isinstance(getattr(self, name), bool), "True or False")
        for name in ("device", "metric"):
            self._check(name, isinstance(getattr(self, name), str), "text")
        betas = isinstance(self.betas, tuple) and len(self.betas) == 2
        betas = betas and all(isinstance(b, float | int) and 0 <= b < 1 for b in self.betas)
        self._check("betas", betas, "two numbers of at least 0 and below 1")
        for name, names in _CHOICES.items():
            self._check(name, getattr(self, name) in names, f"one of {', '.join(names)}")
        if self.schedule == "linear" and self.max_steps is None:
            raise FenchelError(
                "TrainConfig: expected `max_steps` with the schedule linear, which ends there, but "
                "got None."
            )
        if self.max_epochs is self.max_steps is self.max_minutes is self.patience is None:
            raise FenchelError(
                "TrainConfig: expected a limit, but `max_epochs`, `max_steps`, `max_minutes` and "
                "`patience` are all None; set one of them."
            )

    def _is_number(self, name: str, above: float, below: float) -> bool:
        value = getattr(self, name)
        real = isinstance(value, float | int) and not isinstance(value, bool)
        return real and above < value < below

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise FenchelError(
                f"TrainConfig: expected `{name}` to be {expected}, but got "
                f"{short(getattr(self, name))}."
            )


_CHOICES = {
    name: get_args(kind)
    for name, kind in get_type_hints(TrainConfig).items()
    if get_origin(kind) is Literal
}
