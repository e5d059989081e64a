from __future__ import annotations

import torch
from torch import Tensor


def uniform(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Numbers in [0, 1), float64 on the CPU, wherever the generator is."""
    device = "cpu" if generator is None else generator.device
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=device).cpu()
