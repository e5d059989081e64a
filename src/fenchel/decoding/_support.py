"""The tokens that a step gives probability to, listed in decreasing order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fenchel._checks import FenchelError

# Rows of half precision sum to 1 within this; logits, counts and masked rows do not.
_SLACK = 1e-2


@dataclass(frozen=True)
class Support:
    """The entries with p > 0 of n rows, on the CPU, row after row, the likeliest first.

    Equal probabilities stand in the order of their ids, so that what follows is deterministic.
    """

    rows: Tensor  # (entries,) int64
    tokens: Tensor  # (entries,) int64
    probabilities: Tensor  # (entries,) float64, at most 1
    starts: Tensor  # (n + 1,) int64: row i is starts[i]:starts[i + 1]
    size: Tensor  # (n,) int64: how many p > 0 there are, listed or not
    rest: Tensor  # (n,) float64: the mass of those that are not listed

    @cached_property
    def lists(self) -> tuple[list[int], list[float], list[int]]:
        """Tokens, probabilities and starts as lists: entries are read one by one from here."""
        return self.tokens.tolist(), self.probabilities.tolist(), self.starts.tolist()


def list_support(name: str, probabilities: Tensor, rows: int, most: int | None) -> Support:
    """List the tokens with p > 0 of each row, at most the ``most`` likeliest (None: all)."""
    total = _check_probabilities(name, probabilities, rows)
    value, token, size = _likeliest(probabilities, most)
    row = (value > 0).nonzero()[:, 0]
    token, value = token[value > 0], value[value > 0]
    starts = starts_of(row, rows)
    rest = torch.zeros(rows, dtype=torch.float64)
    more = size > starts.diff()
    if bool(more.any()):
        rest = (total.double().cpu() - rest.index_add(0, row, value)).clamp(min=0.0)
        rest[~more] = 0.0
    return Support(row, token, value, starts, size, rest)


def _likeliest(probabilities: Tensor, most: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """The ``most`` largest entries of each row and their ids, equals by id, and how many entries
    are above 0; on the CPU."""
    vocabulary = probabilities.shape[1]
    if most is None:
        most = int(probabilities.count_nonzero(1).max())
    wanted = min(most + 1, vocabulary)  # one more, to see whether it is all
    value, token = probabilities.topk(wanted, dim=1)
    size = value.count_nonzero(1)
    full = size == wanted
    if wanted > most and bool(full.any()):
        size[full] = probabilities[full].count_nonzero(1)
        # topk leaves open which of several equals it returns; it matters only at the edge.
        if bool((value[full, most - 1] == value[full, most]).any()):
            value, token = probabilities.sort(stable=True, dim=1, descending=True)
    value, token = value[:, :most].cpu(), token[:, :most].cpu()
    token, order = token.sort(1)
    value = value.gather(1, order).double().clamp(max=1.0)
    value, order = value.sort(stable=True, dim=1, descending=True)
    return value, token.gather(1, order), size.cpu()


def ranks(groups: Tensor, starts: Tensor) -> Tensor:
    """The place of each entry in its group, from 0, for entries sorted by group."""
    return torch.arange(groups.numel()) - starts[groups]


def starts_of(groups: Tensor, count: int) -> Tensor:
    """Where each group of sorted ``groups`` begins, and where the last one ends: (count + 1,)."""
    ends = torch.bincount(groups, minlength=count).cumsum(0)
    return torch.cat([ends.new_zeros(1), ends])


def _check_probabilities(name: str, probabilities: Tensor, rows: int) -> Tensor:
    """The sum of each row, which is 1 but for rounding."""
    if probabilities.dim() != 2 or probabilities.shape[0] != rows:
        raise FenchelError(
            f"{name}: expected `model.step` to give probabilities of shape ({rows}, V), but got "
            f"{tuple(probabilities.shape)}."
        )
    total = probabilities.sum(1, dtype=torch.promote_types(probabilities.dtype, torch.float32))
    least = probabilities.amin(1)
    # Written so that NaN fails.
    good = ((total - 1.0).abs() <= _SLACK) & (least >= 0)
    if not bool(good.all()):
        row = int((~good).nonzero()[0])
        raise FenchelError(
            f"{name}: expected `model.step` to give probabilities of at least 0 that sum to 1, but "
            f"row {row} sums to {float(total[row]):g} with a least entry of "
            f"{float(least[row]):g}."
        )
    return total
