"""What torch.compile does not look into.

``torch.compiler.disable`` and ``assume_constant_result`` say the same, but they import the
compiler, which takes a second of everyone's start. Here it is asked only if it is there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])

_functions: list[Callable[..., Any]] = []
_disabled: dict[int, Callable[..., Any]] = {}


def constant_in_graphs(function: _F) -> _F:
    """Let the compiler call the function while it traces, and keep its answer."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@constant_in_graphs
def _disable(key: int) -> int:
    if key not in _disabled:
        _disabled[key] = torch.compiler.disable(_functions[key])
    return key


def outside_graphs(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """For what solves: a compiled graph breaks around it, since its loops end as the data say."""
    key = len(_functions)
    _functions.append(function)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        # A frame that the compiler gave up runs as it is, but it would look at those inside of it.
        if torch.compiler.is_compiling() or "torch._dynamo" in sys.modules:
            # Through a global dict with a plain key: that the compiler can follow.
            answer: _R = _disabled[_disable(key)](*args, **kwargs)
            return answer
        return function(*args, **kwargs)

    return call
