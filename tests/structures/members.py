from __future__ import annotations

from collections.abc import Iterator

import torch

from fenchel.structures import Structure


def members_of(structure: Structure, *shape: int) -> Iterator[tuple[int, ...]]:
    """All members of one instance whose scores have a shape, as lists of parts."""
    return structure.enumerate(structure.problem("test", torch.zeros(shape)))
