"""One training loop for all tasks: batches, schedules, checkpoints, resume, records."""

from fenchel.runs.errors import RankError, TrainingError
from fenchel.runs.train_config import TrainConfig
from fenchel.training._batches import TrainingBatch, bucketed_batches, pair_length
from fenchel.training._loop import Trainer
from fenchel.training._state import TrainResult

__all__ = [
    "RankError",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "TrainingBatch",
    "TrainingError",
    "bucketed_batches",
    "pair_length",
]
