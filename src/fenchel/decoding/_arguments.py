"""Checks that all searches share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int


def check_model(name: str, model: Any) -> None:
    """Refuse what cannot be driven, and a model whose dropout would make a proof meaningless."""
    if not (callable(getattr(model, "start", None)) and callable(getattr(model, "step", None))):
        raise FenchelError(
            f"{name}: expected `model` with the methods `start` and `step`, but got "
            f"{type(model).__name__}."
        )
    if getattr(model, "training", False):
        raise FenchelError(
            f"{name}: expected `model` in evaluation mode, but it is in training mode; call "
            "`model.eval()` first."
        )


def check_source(name: str, source: Any, lengths: Any) -> list[int]:
    """Check the sources and their lengths, and return the lengths as ints."""
    check_rows(name, "source", source)
    if not isinstance(lengths, Tensor) or lengths.shape != source.shape[:1]:
        got = tuple(lengths.shape) if isinstance(lengths, Tensor) else type(lengths).__name__
        raise FenchelError(
            f"{name}: expected `source_lengths` to be a tensor of shape ({source.shape[0]},), one "
            f"length a source, but got {got}."
        )
    values = [int(value) for value in lengths.tolist()]
    if any(not 0 <= value <= source.shape[1] for value in values):
        raise FenchelError(
            f"{name}: expected `source_lengths` between 0 and {source.shape[1]}, the width of "
            f"`source`, but got {values}."
        )
    return values


def check_matching(name: str, label: str, rows: Any, source: Tensor) -> None:
    """Check a padded matrix of token ids with one row for each source."""
    check_rows(name, label, rows)
    if rows.shape[0] != source.shape[0]:
        raise FenchelError(
            f"{name}: expected `{label}` with {source.shape[0]} rows, as many as `source`, but got "
            f"{rows.shape[0]}."
        )


def check_rows(name: str, label: str, rows: Any) -> None:
    """Check a padded matrix of token ids."""
    if not isinstance(rows, Tensor) or rows.dim() != 2 or rows.dtype != torch.int64:
        got = (
            f"{rows.dtype} of shape {tuple(rows.shape)}"
            if isinstance(rows, Tensor)
            else type(rows).__name__
        )
        raise FenchelError(
            f"{name}: expected `{label}` to be an int64 tensor with one row a source, but got "
            f"{got}."
        )


def check_at_least(name: str, label: str, value: Any, low: int) -> int:
    """Check an int of at least ``low``."""
    number = check_int(name, label, value)
    if number < low:
        raise FenchelError(f"{name}: `{label}` must be at least {low}; got {value}.")
    return number


def check_count(name: str, label: str, value: Any, meaning: str) -> int | None:
    """Check an int of at least 1, or None, which means ``meaning``."""
    if value is None:
        return None
    number = check_int(name, label, value)
    if number < 1:
        raise FenchelError(
            f"{name}: `{label}` must be at least 1, or None for {meaning}; got {value}."
        )
    return number
