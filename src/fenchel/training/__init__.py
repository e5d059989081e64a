"""One training loop for all tasks: batches, schedules, checkpoints, resume, records."""

from fenchel.training._batches import bucketed_batches
from fenchel.training._checkpoint import Checkpoint, CheckpointStore, load_checkpoint
from fenchel.training._config import TrainConfig
from fenchel.training._errors import RankError, TrainingError
from fenchel.training._loop import Trainer
from fenchel.training._schedule import (
    Constant,
    InverseSqrt,
    Linear,
    Plateau,
    Schedule,
    make_schedule,
)
from fenchel.training._task import TrainingBatch, TrainResult, pair_length
from fenchel.training._yaml import dump_config, load_config, override, save_config

__all__ = [
    "Checkpoint",
    "CheckpointStore",
    "Constant",
    "InverseSqrt",
    "Linear",
    "Plateau",
    "RankError",
    "Schedule",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "TrainingBatch",
    "TrainingError",
    "bucketed_batches",
    "dump_config",
    "load_checkpoint",
    "load_config",
    "make_schedule",
    "override",
    "pair_length",
    "save_config",
]
