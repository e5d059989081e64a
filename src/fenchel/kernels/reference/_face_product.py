from __future__ import annotations

import torch
from torch import Tensor

from fenchel.kernels._table import REFERENCE, implements


@implements("face_product", REFERENCE)
def face_product(lists: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
    """``A Q A' x`` of each instance: how means move on a face when scores move by ``x``.

    Args:
        lists: (instances, members, longest), A: the members as lists of parts, -1 for none.
        matrix: (instances, members, members), Q.
        x: (instances, parts).
    """
    count, members, longest = lists.shape
    flat = (count, members * longest)
    inside = (lists >= 0).reshape(flat)
    places = lists.long().clamp(min=0).reshape(flat)
    slopes = torch.where(inside, x.gather(1, places), 0.0).reshape(lists.shape).sum(-1)
    moved = (matrix @ slopes.unsqueeze(-1)).expand(lists.shape).reshape(flat)
    return torch.zeros_like(x).scatter_add(1, places, torch.where(inside, moved, 0.0))
