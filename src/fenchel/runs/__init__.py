"""Run directories: settings, vocabularies and weights, read and written safely.

Reading one needs no trainer. What the rooms above need beside the names here is in the files
without an underscore: ``about`` (``run.json``), ``checkpoint``, ``config_file``, ``digest``,
``directory``, ``errors``, ``files`` (written whole, read as a stranger's), ``machine``, ``owner``
(who trains there), ``tensors``, ``train_config``, and ``typed`` (settings).
"""

from fenchel.runs.checkpoint import Checkpoint, load_checkpoint
from fenchel.runs.config_file import load_config, save_config

__all__ = [
    "Checkpoint",
    "load_checkpoint",
    "load_config",
    "save_config",
]
