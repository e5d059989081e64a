"""Which device and which way of training a config asks for, and whether the model allows it."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.models import OutputLayer
from fenchel.runs.machine import usable_device
from fenchel.runs.tensors import is_sharded
from fenchel.runs.train_config import TrainConfig
from fenchel.training.distributed._parallel import Loss, Replicated, Sharded, SingleProcess
from fenchel.training.distributed._ranks import Ranks

OLDEST = (2, 7)  # whose FSDP2 can leave parameters alone


def find_device(name: str, ranks: Ranks) -> torch.device:
    """The device of this process; of several, each has the GPU of its number on the machine."""
    if ranks.size > 1 and name.startswith("cuda"):
        if name != "cuda":
            raise FenchelError(
                f"TrainConfig: expected `device` to be cuda with several processes, each of which "
                f"takes its own GPU, but got {short(name)}."
            )
        device = _found(f"cuda:{int(os.environ.get('LOCAL_RANK', ranks.rank))}", name)
        torch.cuda.set_device(device)
        return device
    return _found(name, name)


def make_parallel(
    model: nn.Module, loss: Loss, config: TrainConfig, ranks: Ranks, device: torch.device
) -> SingleProcess:
    """The model as a config and the number of ranks have it trained; see :func:`check_parallel`."""
    if ranks.size == 1:
        return SingleProcess(model, loss)
    kind = Sharded if config.parallel == "fsdp" else Replicated
    return kind(model, loss, ranks, device, config.vocabulary_parallel)


def check_parallel(model: Any, config: TrainConfig, ranks: Ranks, *, own_loss: bool = True) -> None:
    """Check that several processes can train a model in the way that a config says.

    ``own_loss`` is whether the loss is ``model.loss``.
    """
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
        _check_vocabulary(model, own_loss)


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _check_vocabulary(model: Any, own_loss: bool) -> None:
    what = "TrainConfig: `vocabulary_parallel` deals out the tokens of the output layer"
    output = getattr(model, "output", None)
    if not isinstance(output, OutputLayer) or not own_loss:
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


def _found(name: str, said: str) -> torch.device:
    try:
        return usable_device(name)
    except FenchelError as error:
        reason = str(error.__cause__).strip().split("\n")[0][:120]
        raise FenchelError(
            f"TrainConfig: expected `device` to be one that torch can use here, but got "
            f"{short(said)} ({reason})."
        ) from error
