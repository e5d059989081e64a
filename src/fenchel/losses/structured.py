"""Losses of structures: one number an instance, and its reduction."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.losses._cross_entropy_shape import check_reduction
from fenchel.regularizers import StructuredRegularizer


def structured_loss(
    name: str,
    omega: StructuredRegularizer,
    scores: Any,
    target: Any,
    lengths: Tensor | None,
    mask: Tensor | None,
    cost: float | Tensor | None,
    reduction: str,
) -> Tensor:
    """The Fenchel-Young loss of a batch of structures, reduced over its instances."""
    check_reduction(name, reduction)
    rows = omega.loss(scores, target, lengths=lengths, mask=mask, cost=cost)
    if reduction == "none":
        return rows
    return rows.mean() if reduction == "mean" else rows.sum()


def refuse_class_options(name: str, **untouched: bool) -> None:
    """Refuse what makes sense for classes only, if it was given."""
    given = [option for option, default in untouched.items() if not default]
    if given:
        raise FenchelError(
            f"{name}: `{given[0]}` is for classes, not for structures; leave it out."
        )
