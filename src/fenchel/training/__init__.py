"""One training loop for all tasks: batches, schedules, checkpoints, resume, records."""

from fenchel.runs.errors import TrainingError
from fenchel.runs.train_config import TrainConfig
from fenchel.training._loop import Trainer
from fenchel.training._state import TrainResult
from fenchel.training.batches import TrainingBatch

__all__ = [
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "TrainingBatch",
    "TrainingError",
]
