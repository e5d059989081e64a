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
    _check_probabilities(name, probabilities, rows)
    keep = probabilities > 0
    size = keep.sum(1)
    capped = most is not None and bool((size > most).any())
    if most is not None and capped:
        # topk leaves open which of several equal values it returns: it only finds the threshold.
        keep &= probabilities >= probabilities.topk(most, dim=1).values[:, -1:]
    row, token = keep.nonzero(as_tuple=True)
    value = probabilities[row, token].double().clamp(max=1.0)
    row, token, value, size = row.cpu(), token.cpu(), value.cpu(), size.cpu()

    order = value.argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    row, token, value = row[order], token[order], value[order]
    starts = _starts(row, rows)
    rest = torch.zeros(rows, dtype=torch.float64)
    if most is not None and capped:
        total = probabilities.sum(1, dtype=torch.float64).cpu()
        listed = ranks(row, starts) < most
        row, token, value = row[listed], token[listed], value[listed]
        starts = _starts(row, rows)
        rest = (total - rest.index_add(0, row, value)).clamp(min=0.0)
        rest[starts.diff() == size] = 0.0
    return Support(row, token, value, starts, size, rest)


def ranks(groups: Tensor, starts: Tensor) -> Tensor:
    """The place of each entry in its group, from 0, for entries sorted by group."""
    return torch.arange(groups.numel()) - starts[groups]


def _starts(groups: Tensor, count: int) -> Tensor:
    """Where each group of sorted ``groups`` begins, and where the last one ends: (count + 1,)."""
    ends = torch.bincount(groups, minlength=count).cumsum(0)
    return torch.cat([ends.new_zeros(1), ends])


def _check_probabilities(name: str, probabilities: Tensor, rows: int) -> None:
    if probabilities.dim() != 2 or probabilities.shape[0] != rows:
        raise FenchelError(
            f"{name}: expected `model.step` to give probabilities of shape ({rows}, V), but got "
            f"{tuple(probabilities.shape)}."
        )
    total = probabilities.sum(1, dtype=torch.float64)
    # Written so that NaN fails.
    good = ((total - 1.0).abs() <= _SLACK) & (probabilities >= 0).all(1)
    if not bool(good.all()):
        row = int((~good).nonzero()[0])
        raise FenchelError(
            f"{name}: expected `model.step` to give probabilities of at least 0 that sum to 1, but "
            f"row {row} sums to {float(total[row]):g} with a least entry of "
            f"{float(probabilities[row].min()):g}."
        )
