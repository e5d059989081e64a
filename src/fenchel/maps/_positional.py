from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fenchel._checks import FenchelError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def no_bare_int(parameter: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """For a map whose second argument is a ``parameter``: refuse an int there without its name.

    ``torch.softmax(x, 1)`` means ``dim=1``. A map that took the 1 for its parameter would answer
    along another axis without a word.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        name = getattr(function, "__name__", "map")

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if len(args) > 1 and _is_int(args[1]):
                raise FenchelError(
                    f"{name}: a second argument of {args[1]!r} could mean `dim` or `{parameter}`; "
                    f"write `dim={args[1]!r}` or `{parameter}={args[1]!r}`."
                )
            return function(*args, **kwargs)

        return call

    return decorate


def _is_int(value: Any) -> bool:
    kind = type(value)
    if kind is float:  # most often; numbers.Integral asks around
        return False
    return kind is int or (isinstance(value, numbers.Integral) and kind is not bool)
