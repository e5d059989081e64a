"""What two ranks do, called on both: runs to compare with one process, and checks of their own."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.training.ranks_cases import CASES, train


def curves(folder: Path) -> None:
    """All cases, in both precisions."""
    for number, name in enumerate(CASES):
        for dtype in (torch.float32, torch.float64):
            train(name, folder / f"{number}-{dtype}", dtype)
