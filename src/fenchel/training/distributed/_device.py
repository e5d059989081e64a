"""The device that a config names, as this rank has it."""

from __future__ import annotations

import os

import torch

from fenchel._checks import FenchelError
from fenchel.training.distributed._ranks import Ranks


def find_device(name: str, ranks: Ranks) -> torch.device:
    """The device of this process; of several, each has the GPU of its number on the machine."""
    try:
        device = torch.device(name)
        if ranks.size > 1 and device.type == "cuda":
            if device.index is not None:
                raise FenchelError(
                    f"TrainConfig: expected `device` to be cuda with several processes, each of "
                    f"which takes its own GPU, but got {name!r}."
                )
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", ranks.rank)))
            torch.cuda.set_device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise FenchelError(
            f"TrainConfig: expected `device` to be one that torch can use here, but got {name!r} "
            f"({reason})."
        ) from error
    return device
