"""One training loop for all tasks: batches, schedules, checkpoints, resume, records."""

from fenchel.runs import (
    Checkpoint,
    CheckpointStore,
    RankError,
    TrainConfig,
    TrainingError,
    dump_config,
    load_checkpoint,
    load_config,
    override,
    save_config,
)
from fenchel.training._batches import bucketed_batches
from fenchel.training._loop import Trainer
from fenchel.training._schedule import (
    Constant,
    InverseSqrt,
    Linear,
    Plateau,
    Schedule,
    make_schedule,
)
from fenchel.training._state import TrainResult
from fenchel.training._workload import TrainingBatch, pair_length

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
