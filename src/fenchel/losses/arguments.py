"""Checks of what losses take from ``F.cross_entropy``, for functions and modules alike."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError, check_choice, check_dim, check_number, check_scores
from fenchel._dtypes import full_precision

REDUCTIONS = ("mean", "sum", "none")


def class_axis(name: str, scores: Any, dim: int | None) -> int:
    """The checked axis of the classes: 1, or 0 for 1-d scores, unless told."""
    if dim is None:
        dim = 1 if isinstance(scores, Tensor) and scores.dim() > 1 else 0
    return check_scores(name, scores, check_dim(name, dim))


def check_reduction(name: str, reduction: Any) -> None:
    """One of torch's three words."""
    if reduction not in REDUCTIONS:
        check_choice(name, "reduction", reduction, REDUCTIONS)


def check_smoothing(name: str, value: Any) -> float:
    """A share between 0 and 1."""
    smoothing = check_number(name, "label_smoothing", value, 0.0, "(and at most 1)")
    if smoothing > 1:
        raise FenchelError(f"{name}: `label_smoothing` must be in [0, 1]; got {value!r}.")
    return smoothing


def check_weight(
    name: str, weight: Any, scores: Tensor, dim: int, label: str = "weight"
) -> Tensor | None:
    """Check the numbers of the classes; half precision comes back as float32."""
    if weight is None:
        return None
    classes = scores.shape[dim]
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        got = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise FenchelError(
            f"{name}: expected `{label}` to be a floating tensor of one number per class, but got "
            f"{got}."
        )
    if weight.shape != (classes,) or weight.device != scores.device:
        raise FenchelError(
            f"{name}: expected `{label}` of shape ({classes},) on {scores.device}, but got "
            f"{tuple(weight.shape)} on {weight.device}."
        )
    return full_precision(weight)


def refuse_class_options(name: str, **untouched: bool) -> None:
    """Refuse what makes sense for classes only, if it was given."""
    given = [option for option, default in untouched.items() if not default]
    if given:
        raise FenchelError(
            f"{name}: `{given[0]}` is for classes, not for structures; leave it out."
        )
