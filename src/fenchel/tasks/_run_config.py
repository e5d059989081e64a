from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.models import LSTMConfig, TransformerConfig
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
