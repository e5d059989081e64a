"""What this machine has: memory and devices, asked for before they are taken."""

from __future__ import annotations

import os

import torch

from fenchel._checks import FenchelError
from fenchel._short import short


def memory_size() -> int | None:
    """Bytes of memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_fits(what: object, size: int) -> None:
    """Refuse what is larger than all memory of this machine."""
    memory = memory_size()
    if memory is not None and size > memory:
        raise FenchelError(
            f"{what}: expected what fits into the {memory / 1e9:.3g} GB of memory of this machine, "
            f"but it takes {size / 1e9:.3g} GB."
        )


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
