"""Tasks: how files are read, how text becomes numbers, how answers are scored."""

from fenchel.tasks._files import STDIN, read_lines
from fenchel.tasks._metrics import edit_distance
from fenchel.tasks._predict import SearchOptions, evaluate, predict, search_statistics
from fenchel.tasks._run import Run, ensemble, open_run, open_runs
from fenchel.tasks._run_config import DataConfig, ModelKind, RunConfig, SearchConfig
from fenchel.tasks._task import Example, Task
from fenchel.tasks._tokens import BPE, Vocabulary
from fenchel.tasks._train import prepare_run, resume_run, start_run, train_run
from fenchel.tasks.inflection import (
    Inflection,
    InflectionConfig,
    language_of,
    read_inflection,
)
from fenchel.tasks.translation import (
    Summarization,
    TextConfig,
    Translation,
    read_parallel,
    read_sources,
)

__all__ = [
    "BPE",
    "STDIN",
    "DataConfig",
    "Example",
    "Inflection",
    "InflectionConfig",
    "ModelKind",
    "Run",
    "RunConfig",
    "SearchConfig",
    "SearchOptions",
    "Summarization",
    "Task",
    "TextConfig",
    "Translation",
    "Vocabulary",
    "edit_distance",
    "ensemble",
    "evaluate",
    "language_of",
    "open_run",
    "open_runs",
    "predict",
    "prepare_run",
    "read_inflection",
    "read_lines",
    "read_parallel",
    "read_sources",
    "resume_run",
    "search_statistics",
    "start_run",
    "train_run",
]
