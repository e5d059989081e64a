"""Rows of probabilities and their gold classes, checked, for :mod:`fenchel.metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_ignore_index, check_scores

_INDICES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_BLOCK = 2**20  # how many entries are held in float64 at a time


@dataclass(frozen=True)
class GoldRows:
    """N rows over C classes, some of which do not count."""

    p: Tensor  # (N, C), in the caller's dtype
    target: Tensor  # (N), 0 where it is ignored
    kept: Tensor  # (N), boolean
    gold: Tensor  # (N), p at target, float64

    def sum(self, values: Tensor) -> Tensor:
        """Over the rows that count."""
        return torch.where(self.kept, values, 0.0).sum()

    def mean(self, values: Tensor) -> Tensor:
        """Over the rows that count; NaN if there are none."""
        return self.sum(values) / self.kept.sum()


def gold_rows(name: str, p: Any, target: Any, dim: Any, ignore_index: Any) -> GoldRows:
    """The rows of ``p`` along ``dim``, after all checks."""
    at = check_scores(name, p, dim, "p")
    _check_target(name, target, p, at)
    rows, classes = flat_rows(p, at), target.reshape(-1).long()
    kept = classes != check_ignore_index(name, ignore_index)
    classes = torch.where(kept, classes, 0)
    _check_classes(name, classes, rows.shape[-1])
    check_distributions(name, "p", rows, kept)
    gold = rows.gather(-1, classes.unsqueeze(-1)).squeeze(-1)
    return GoldRows(rows, classes, kept, gold.to(_wide(p)))


def flat_rows(p: Tensor, dim: int) -> Tensor:
    """``p`` without a graph, as (N, C)."""
    return p.detach().movedim(dim, -1).reshape(-1, p.shape[dim])


def blocks(p: Tensor) -> Iterator[Tensor]:
    """Rows (N, C) in float64, a few at a time: all of them may not fit."""
    for block in p.split(max(1, _BLOCK // p.shape[-1])):
        yield block.to(_wide(p))


def check_distributions(name: str, label: str, p: Tensor, kept: Tensor) -> None:
    """Check, on the CPU, that the rows that count are not negative and sum to 1."""
    if p.device.type != "cpu":
        return
    # Half precision rounds each entry, and those near 0 by a fixed amount.
    info = torch.finfo(p.dtype)
    allowed = 4 * info.eps + p.shape[-1] * info.tiny * info.eps if info.bits == 16 else 1e-3
    lowest = torch.cat([x.amin(-1) for x in blocks(p)])
    totals = torch.cat([x.sum(-1) for x in blocks(p)])
    wrong = kept & ~((lowest >= 0) & ((totals - 1).abs() <= allowed))
    if bool(wrong.any()):
        row = int(wrong.long().argmax())
        low, total = float(lowest[row]), float(totals[row])
        found = f"has an entry of {low:g}" if low < 0 else f"sums to {total:g}"
        raise FenchelError(
            f"{name}: expected probabilities that sum to 1 along the class axis of `{label}`, but "
            f"row {row} {found}; apply a map such as fenchel.entmax to scores first."
        )


def _check_target(name: str, target: Any, p: Tensor, dim: int) -> None:
    if not isinstance(target, Tensor):
        raise FenchelError(
            f"{name}: expected `target` to be a torch.Tensor, but got {type(target).__name__}."
        )
    if target.dtype not in _INDICES:
        raise FenchelError(
            f"{name}: expected `target` of class indices (int64), but got {target.dtype}."
        )
    if target.device != p.device:
        raise FenchelError(
            f"{name}: expected `target` on the device of `p` ({p.device}), but it is on "
            f"{target.device}."
        )
    rows = p.shape[:dim] + p.shape[dim + 1 :]
    if target.shape != rows:
        raise FenchelError(
            f"{name}: expected `target` of shape {tuple(rows)} (`p` of shape {tuple(p.shape)} "
            f"without dim {dim}), but got {tuple(target.shape)}."
        )


def _check_classes(name: str, classes: Tensor, n: int) -> None:
    if classes.device.type != "cpu" or classes.numel() == 0:
        return
    low, high = (int(value) for value in classes.aminmax())
    if low < 0 or high >= n:
        raise FenchelError(
            f"{name}: expected class indices in [0, {n - 1}] in `target`, but got "
            f"{low if low < 0 else high}."
        )


def _wide(x: Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64
