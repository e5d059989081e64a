"""Run directories: what is in one, read and written safely. Reading one needs no trainer."""

from fenchel.runs._about import MEANING, check_digests, check_meaning, read_about, write_about
from fenchel.runs._checkpoint import (
    Checkpoint,
    CheckpointStore,
    Tensors,
    load_checkpoint,
    same_weights,
    tensors_of,
)
from fenchel.runs._digest import digest_examples
from fenchel.runs._directory import check_new, check_writable, write_new
from fenchel.runs._errors import RankError, TrainingError, Unreadable
from fenchel.runs._files import (
    DISK_FULL,
    LARGE,
    check_directory,
    is_text,
    open_plain,
    parse_json,
    read_plain,
    replace_file,
    sync_directory,
    write_all,
    write_file,
)
from fenchel.runs._machine import check_fits, usable_device
from fenchel.runs._owner import RunLock, claim, disown, is_claimed, launched
from fenchel.runs._tensors import GatheredTensors, Shapes, is_sharded, whole
from fenchel.runs._train_config import TrainConfig
from fenchel.runs._typed import build, check_whole, setting
from fenchel.runs._yaml import dump_config, load_config, override, save_config

__all__ = [
    "DISK_FULL",
    "LARGE",
    "MEANING",
    "Checkpoint",
    "CheckpointStore",
    "GatheredTensors",
    "RankError",
    "RunLock",
    "Shapes",
    "Tensors",
    "TrainConfig",
    "TrainingError",
    "Unreadable",
    "build",
    "check_digests",
    "check_directory",
    "check_fits",
    "check_meaning",
    "check_new",
    "check_whole",
    "check_writable",
    "claim",
    "digest_examples",
    "disown",
    "dump_config",
    "is_claimed",
    "is_sharded",
    "is_text",
    "launched",
    "load_checkpoint",
    "load_config",
    "open_plain",
    "override",
    "parse_json",
    "read_about",
    "read_plain",
    "replace_file",
    "same_weights",
    "save_config",
    "setting",
    "sync_directory",
    "tensors_of",
    "usable_device",
    "whole",
    "write_about",
    "write_all",
    "write_file",
    "write_new",
]
