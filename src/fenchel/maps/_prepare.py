"""What every map does around its family: check, mask, compute half precision in float32."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import check_mask, check_scores
from fenchel.maps._family import Family, Parameter

_HALF = (torch.float16, torch.bfloat16)
POSITIVE = "a positive finite number"


def prepare(name: str, scores: Tensor, dim: int, mask: Tensor | None) -> tuple[Tensor, int]:
    """Checked and masked scores, and ``dim`` as a non-negative index."""
    dim = check_scores(name, scores, dim, may_be_empty=True)
    if mask is not None:
        check_mask(name, mask, scores)
        scores = scores.masked_fill(~mask, -math.inf)
    return scores, dim


def apply(
    family: Family, scores: Tensor, parameter: Parameter, dim: int, temperature: float = 1.0
) -> Tensor:
    """Run a family on prepared scores of any floating dtype, divided by ``temperature``.

    As in torch.softmax, a number is a row of one entry, and a row may have none.
    """
    if scores.dim() == 0:
        return apply(family, scores.unsqueeze(0), parameter, 0, temperature).squeeze(0)
    if scores.shape[dim] == 0:
        return scores.clone()
    wide = scores.float() if scores.dtype in _HALF else scores
    if temperature != 1:
        wide = _below_top(wide, dim) / temperature
    p = family(wide, parameter, dim)
    if scores.dtype not in _HALF:
        return p
    # torch.softmax gives float32 under CUDA's autocast; so do we, to be swapped in anywhere.
    if scores.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return p
    return p.to(scores.dtype)


def _below_top(scores: Tensor, dim: int) -> Tensor:
    """Scores minus their maximum, a constant: no map and no derivative changes by it.

    A quotient of large scores is rounded at their size; one of their differences is not.
    """
    top = scores.detach().amax(dim, keepdim=True)
    return scores - torch.where(top == -math.inf, 0.0, top)
