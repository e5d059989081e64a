"""Tasks: how files are read, how text becomes numbers, how answers are scored."""

from fenchel.tasks._predict import SearchOptions, evaluate, predict, search_statistics
from fenchel.tasks._run import Run, ensemble, open_run, open_runs
from fenchel.tasks._task import Example, Task
from fenchel.tasks._train import prepare_run, resume_run, start_run, train_run
from fenchel.tasks.inflection import Inflection, InflectionConfig
from fenchel.tasks.run_config import DataConfig, RunConfig, SearchConfig
from fenchel.tasks.translation import Summarization, TextConfig, Translation

__all__ = [
    "DataConfig",
    "Example",
    "Inflection",
    "InflectionConfig",
    "Run",
    "RunConfig",
    "SearchConfig",
    "SearchOptions",
    "Summarization",
    "Task",
    "TextConfig",
    "Translation",
    "ensemble",
    "evaluate",
    "open_run",
    "open_runs",
    "predict",
    "prepare_run",
    "resume_run",
    "search_statistics",
    "start_run",
    "train_run",
]
