"""Arguments that the package takes and the functions here do not need, or want in another dtype."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError


def floating(value: Any, like: Tensor) -> Any:
    """The package takes an integer tensor for a parameter; the maps want a floating one."""
    if isinstance(value, Tensor) and not value.is_floating_point():
        return value.to(like.dtype)
    return value


def check_count(name: str, label: str, value: Any) -> None:
    if value is None:
        return
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if isinstance(value, bool) or count < 1:
        raise FenchelError(
            f"{name}: expected `{label}` to be a positive int or None, but got {value!r}."
        )


def check_flag(name: str, value: Any) -> None:
    if value not in (True, False):
        raise FenchelError(
            f"{name}: expected `ensure_sum_one` to be True or False, but got {value!r}."
        )
