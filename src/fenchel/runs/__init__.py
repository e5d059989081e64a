"""Run directories: settings, vocabularies and weights, read and written safely.

Reading one needs no trainer. What the rooms above need beside the names here is in the files
without an underscore: ``about`` (``run.json``), ``checkpoint``, ``digest``, ``directory``,
``errors``, ``files`` (written whole, read as a stranger's), ``machine``, ``owner`` (who trains
there), ``tensors``, ``train_config``, and ``typed`` (settings).
"""

from fenchel.runs._yaml import dump_config, load_config, override, save_config
from fenchel.runs.checkpoint import Checkpoint, CheckpointStore, load_checkpoint

__all__ = [
    "Checkpoint",
    "CheckpointStore",
    "dump_config",
    "load_checkpoint",
    "load_config",
    "override",
    "save_config",
]
