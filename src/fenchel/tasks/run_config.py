"""All settings of a run, and defaults that suit the size of the training data.

An epoch of 12,000 lines is some two hundred updates, one of 120 lines is two. If the defaults
counted epochs and validations, a small training would have its learning rate cut and be given up
before it has learned anything. So they count updates, and the settings of a run say what that is in
epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Literal

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.models import LSTMConfig, TransformerConfig
from fenchel.runs.config_file import override
from fenchel.runs.train_config import TrainConfig
from fenchel.runs.typed import check_whole, setting
from fenchel.tasks._task import Task
from fenchel.tasks.inflection import InflectionConfig
from fenchel.tasks.translation import TextConfig

MOST_PENALTY = 100.0  # the length to this power is still a number
ModelKind = Literal["lstm", "transformer"]


@dataclass(frozen=True)
class DataConfig:
    """The files of a run."""

    train: tuple[str, ...] = setting((), "files to train on")
    dev: tuple[str, ...] = setting((), "files to validate on")
    language: str | None = setting(
        None, "inflection: the language of all files; null = what each file's name says"
    )

    def __post_init__(self) -> None:
        for path in (*self.train, *self.dev):
            if not path or "\0" in path:
                raise FenchelError(f"DataConfig: expected names of files, but got {short(path)}.")


@dataclass(frozen=True)
class SearchConfig:
    """How answers are searched for, unless the command says otherwise."""

    beam: int = setting(5, "how many prefixes of an answer live at a time")
    max_length: int = setting(100, "the longest answer, in tokens")
    length_penalty: float = setting(0.0, "favours long answers; 0 = ranked by probability")
    validation_beam: int = setting(1, "the beam of validation during training; 1 = greedy")

    def __post_init__(self) -> None:
        for name in ("beam", "max_length", "validation_beam"):
            check_whole("SearchConfig", name, getattr(self, name), 1, 1_000_000)
        if not 0 <= self.length_penalty <= MOST_PENALTY:
            raise FenchelError(
                f"SearchConfig: expected `length_penalty` between 0 and {MOST_PENALTY:g}, but got "
                f"{short(self.length_penalty)}."
            )


@dataclass(frozen=True)
class RunConfig:
    """All of a run: ``config.yaml`` in its directory."""

    data: DataConfig = field(metadata={"help": "The files."})
    task: InflectionConfig | TextConfig = field(metadata={"help": "From text to tokens."})
    model: LSTMConfig | TransformerConfig = field(metadata={"help": "The model."})
    train: TrainConfig = field(metadata={"help": "The training."})
    search: SearchConfig = field(metadata={"help": "The search for answers."})


def default_config(task: type[Task], model: ModelKind) -> RunConfig:
    """What a run starts from, before ``--set``."""
    training: dict[str, Any] = {"metric": task.metric, "mode": "max", "patience": 10}
    if model == "transformer":
        training |= {"schedule": "inverse_sqrt", "betas": (0.9, 0.98)}
    kind = TransformerConfig if model == "transformer" else LSTMConfig
    return RunConfig(
        data=DataConfig(),
        task=task.default_options(),
        model=kind(),
        train=TrainConfig(**{**training, **task.training}),
        search=SearchConfig(),
    )


UPDATES = 3000  # at least, unless max_epochs is set
BETWEEN = 50  # at least between two validations, unless max_epochs is set
CUT = 150  # at least without improvement, before the learning rate is cut
GIVE_UP = 1000  # at least without improvement, before training ends


def fit(default: RunConfig, settings: Sequence[str], pairs: Sequence[Any]) -> RunConfig:
    """The default config for so much data, and the settings in it.

    Args:
        default: of task and model.
        settings: what is set stays as it is set.
        pairs: the training data.
    """
    said = {setting.partition("=")[0].strip() for setting in settings}
    config = override(default, settings)
    epoch = _updates_per_epoch(config, pairs)
    train = default.train
    assert train.max_epochs is not None and train.patience is not None
    if "train.max_epochs" not in said and epoch * train.max_epochs < UPDATES:
        train = replace(train, max_epochs=ceil(UPDATES / epoch))
        if epoch < BETWEEN:
            train = replace(train, validate_every=BETWEEN)
    fitted = override(replace(default, train=train), settings).train
    between = fitted.validate_every or epoch
    total = min(
        (fitted.max_epochs or 2**53) * epoch, fitted.max_steps or 2**53
    )  # an end by the clock is not known
    train = replace(
        train,
        patience=max(train.patience or 1, ceil(GIVE_UP / between)),
        plateau_patience=max(train.plateau_patience, ceil(CUT / between) - 1),
        warmup_steps=max(1, min(train.warmup_steps, total // 10)),
    )
    return override(replace(default, train=train), settings)


def _updates_per_epoch(config: RunConfig, pairs: Sequence[Any]) -> int:
    from fenchel.training.batches import bucketed_batches, pair_length  # not needed to predict

    train = config.train
    return len(
        bucketed_batches(
            [pair_length(pair) for pair in pairs],
            unit=train.batch_unit,
            size=train.batch_size,
            window=train.bucket_window,
            seed=train.seed,
            epoch=1,
        )
    )
