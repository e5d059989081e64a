"""Which way of training a config asks for, and whether the model allows it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fenchel._checks import FenchelError
from fenchel.models import OutputLayer
from fenchel.training._config import TrainConfig
from fenchel.training._task import Task, model_loss
from fenchel.training.distributed._parallel import Plain, Replicated, Sharded
from fenchel.training.distributed._ranks import Ranks
from fenchel.training.distributed._wholes import is_sharded

OLDEST = (2, 7)  # whose FSDP2 can leave parameters alone


def make_parallel(
    model: nn.Module, task: Task, config: TrainConfig, ranks: Ranks, device: torch.device
) -> Plain:
    """The model as a config and the number of ranks have it trained; see :func:`check_parallel`."""
    if ranks.size == 1:
        return Plain(model, task.loss)
    kind = Sharded if config.parallel == "fsdp" else Replicated
    return kind(model, task.loss, ranks, device, config.vocabulary_parallel)


def check_parallel(model: Any, config: TrainConfig, ranks: Ranks, loss: Any = model_loss) -> None:
    """Check that several processes can train a model in the way that a config says."""
    if ranks.size == 1:
        return
    if _torch_version() < OLDEST:
        raise FenchelError(
            f"Trainer: several processes need torch {OLDEST[0]}.{OLDEST[1]} or newer, but this is "
            f"{torch.__version__}; train with one process, or install a newer torch."
        )
    name = type(model).__name__
    if any(is_sharded(p) for p in model.parameters()):
        raise FenchelError(
            f"Trainer: expected a whole model, but this {name} is sharded already; build it again "
            f"for another run."
        )
    if config.parallel == "fsdp" and not getattr(model, "blocks", list)():
        raise FenchelError(
            f"TrainConfig: `parallel: fsdp` shards the layers of a Transformer, but the model is "
            f"{name}, which has none to shard; use ddp."
        )
    if config.vocabulary_parallel:
        _check_vocabulary(model, loss)


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _check_vocabulary(model: Any, loss: Any) -> None:
    what = "TrainConfig: `vocabulary_parallel` deals out the tokens of the output layer"
    output = getattr(model, "output", None)
    if not isinstance(output, OutputLayer) or loss is not model_loss:
        raise FenchelError(
            f"{what}, for which it expects a model of fenchel.models with its own loss, but got "
            f"{type(model).__name__}."
        )
    names = [n for n, p in model.named_parameters(remove_duplicate=False) if p is output.weight]
    if len(names) > 1:
        raise FenchelError(
            f"{what}, but its weight is tied to {names[0]}, which every rank needs whole; set "
            f"model.tied_embeddings=false."
        )
