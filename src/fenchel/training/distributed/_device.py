"""The device that a config names, as this rank has it."""

from __future__ import annotations

import os

import torch

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.training.distributed._ranks import Ranks


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


def usable_device(name: str) -> torch.device:
    """The device of a name, if numbers can be put there and read back."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # meta has no numbers
    except (RuntimeError, AssertionError) as error:  # torch raises either
        raise FenchelError(
            f"device: expected a device of this torch, as cpu or cuda, but got {short(name)}."
        ) from error
    return device


def _found(name: str, said: str) -> torch.device:
    try:
        return usable_device(name)
    except FenchelError as error:
        reason = str(error.__cause__).strip().split("\n")[0][:120]
        raise FenchelError(
            f"TrainConfig: expected `device` to be one that torch can use here, but got "
            f"{short(said)} ({reason})."
        ) from error
